"""What people see: errors, notes, progress. Answers go to stdout, everything about them to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

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


@contextmanager
def _bar() -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        yield progress


def fetch(name: str) -> Path:
    """The path of a model, downloaded first with a progress bar where that is needed."""
    with _bar() as progress:
        tasks: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            task = tasks.get(stage)
            if task is None:
                task = tasks[stage] = int(progress.add_task(stage, total=total or None))
            progress.update(task, completed=done, total=total or None)  # type: ignore[arg-type]

        return source.resolve(name, progress=show)
