"""What people see: errors, notes, progress. Answers go to stdout, everything about them to stderr."""

from __future__ import annotations

import sys
from contextlib import closing
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn

from camshaft.formats import source

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)


def version() -> str:
    """`camshaft X.Y.Z`, from the installed package."""
    try:
        return f"camshaft {installed_version('camshaft')}"
    except PackageNotFoundError:
        return "camshaft (not installed)"


def fail(message: str) -> None:
    """One line on stderr, whatever the message held."""
    err.print(f"[bold red]error:[/] {_plain(message)}", soft_wrap=True)


def warn(message: str) -> None:
    err.print(f"[yellow]warning:[/] {_plain(message)}", soft_wrap=True)


def note(message: str) -> None:
    err.print(f"[dim]{_plain(message)}[/]", soft_wrap=True)


def say(text: str) -> None:
    """A line of the answer."""
    print(text, flush=True)


def write(text: str) -> None:
    """A piece of the answer, shown at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def _plain(message: str) -> str:
    return " ".join(message.split()).replace("[", "\\[")


class _Bar:
    """A progress bar that appears with the first thing it is told, so that a model which is there already leaves no trace of one."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._progress = Progress(*columns, console=err, transient=True)
        self._tasks: dict[str, TaskID] = {}

    def show(self, stage: str, done: int, total: int) -> None:
        if not self._tasks:
            self._progress.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._progress.add_task(stage, total=None)
        self._progress.update(self._tasks[stage], completed=done, total=total or None)

    def close(self) -> None:
        if self._tasks:
            self._progress.stop()


def fetch(name: str) -> Path:
    """The path of a model, downloaded first with a progress bar where that is needed."""
    with closing(_Bar()) as bar:
        return source.resolve(name, progress=bar.show)
