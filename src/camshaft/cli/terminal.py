"""What people see: errors, notes, progress. Answers go to stdout, everything about them to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from camshaft.formats import source

if TYPE_CHECKING:  # rich takes longer to import than a start can spare, and is for tables and bars alone
    from rich.progress import Progress, TaskID
    from rich.table import Table

_STYLES = {"bold": "1", "dim": "2", "red": "1;31", "green": "1;32", "yellow": "33"}


def version() -> str:
    """`camshaft X.Y.Z`, from the installed package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed_version

    try:
        return f"camshaft {installed_version('camshaft')}"
    except PackageNotFoundError:
        return "camshaft (not installed)"


def fail(message: str) -> None:
    """One line on stderr, whatever the message held."""
    _tell(f"{_styled('error:', 'red')} {one_line(message)}")


def warn(message: str) -> None:
    _tell(f"{_styled('warning:', 'yellow')} {one_line(message)}")


def note(message: str) -> None:
    _tell(_styled(one_line(message), "dim"))


def ready(seconds: float, address: str, rest: str) -> None:
    """The line that a start ends with."""
    _tell(f"{_styled('ready', 'green')} after {seconds:.2f} s: {_styled(address, 'bold')}   {one_line(rest)}")


def table(rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = ()) -> None:
    """Rows on stdout, in columns. Without heads the first column is what the others are about."""
    from rich.console import Console

    Console(highlight=False).print(grid(rows, heads))


def grid(rows: Iterable[tuple[str, ...]], heads: tuple[str, ...] = ()) -> Table:
    """The same, to be shown by others."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(*heads, box=None, show_header=bool(heads), pad_edge=False)
    for first, *others in rows:
        shown.add_row(Text(first, style="" if heads else "dim"), *map(Text, others))
    return shown


def say(text: str) -> None:
    """A line of the answer."""
    print(text, flush=True)


def write(text: str) -> None:
    """A piece of the answer, shown at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def one_line(message: str) -> str:
    """One line, and no character that a terminal would obey."""
    return "".join(c for c in " ".join(message.split()) if c.isprintable())


def _styled(text: str, style: str) -> str:
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if _has_colours(sys.stderr) else text


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class _Bar:
    """A progress bar that appears with the first thing it is told, so that a model which is there already leaves no trace of one."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}

    def show(self, stage: str, done: int, total: int) -> None:
        if self._progress is None:
            self._progress = _progress()
            self._progress.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=None)
        self._progress.update(self._tasks[stage], completed=done, total=total or None)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.stop()


def _progress() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)


def fetch(name: str) -> Path:
    """The path of a model, downloaded first with a progress bar where that is needed."""
    with closing(_Bar()) as bar:
        return source.resolve(name, progress=bar.show)
