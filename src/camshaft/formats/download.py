"""A catalogue entry becomes a verified file in the cache: all of it or nothing, however many processes ask at once."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from camshaft.errors import DownloadError
from camshaft.formats import child, wheel
from camshaft.formats.catalogue import Entry
from camshaft.formats.digest import remember

# Hears (stage, bytes done, bytes in all or 0 where unknown), a few times a second.
Progress = Callable[[str, int, int], None]

_LOCK_POLL_S = 0.2
_LOCK_DEADLINE_S = 6 * 3600.0
_DISK_MARGIN_BYTES = 16 << 20


def silent(stage: str, done: int, total: int) -> None:
    """Progress that nobody watches."""


def is_complete(path: Path, entry: Entry) -> bool:
    """Whether the finished file is there. Only verified files get their name, so that the size is enough."""
    return path.is_file() and path.stat().st_size == entry.bytes


def is_intact(path: Path, entry: Entry) -> bool:
    """Whether the finished file still holds what was verified. Reads all of it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == entry.sha256


def fetch(entry: Entry, folder: Path, progress: Progress = silent, limits: child.Limits | None = None) -> Path:
    """The file of `entry` in `folder`, fetched, joined and verified unless it is there already.

    Raises DownloadError when it cannot be fetched, does not fit on the disk or is not what the catalogue says; nothing is left behind then.
    """
    path = folder / entry.file
    if is_complete(path, entry):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f".{entry.file}.lock", progress):
            # Another process may have finished it while this one waited.
            if is_complete(path, entry):
                return path
            _sweep(folder, entry)
            _check_space(entry, folder)
            with tempfile.TemporaryDirectory(prefix=_prefix(entry), dir=folder) as work:
                finished = _assemble(entry, Path(work), progress, limits or child.Limits())
                os.replace(finished, path)
                remember((path,), entry.sha256)
    except OSError as error:
        raise _disk_error(entry, folder, error) from error
    return path


def _assemble(entry: Entry, work: Path, progress: Progress, limits: child.Limits) -> Path:
    """The joined and verified file, inside `work`."""
    finished, digest, n_done = work / "model", hashlib.sha256(), 0
    with finished.open("wb") as out:
        for index, part in enumerate(entry.parts):
            room = work / f"part{index}"
            room.mkdir()
            before = n_done

            def seen(n: int, before: int = before) -> None:
                # While pip moves a finished wheel there are two of it for a moment.
                progress(f"downloading {entry.name}", min(before + n, entry.bytes), entry.bytes)

            fetched = wheel.download(part, room, seen, limits)
            n_done += wheel.extract(fetched, part.member, out, digest, entry.bytes - n_done)
            shutil.rmtree(room)
        out.flush()
        os.fsync(out.fileno())
    if n_done != entry.bytes or digest.hexdigest() != entry.sha256:
        found = f"{n_done:,} bytes with sha256 {digest.hexdigest()}"
        raise DownloadError(
            f"{entry.name} has a wrong checksum: {found}, but {entry.bytes:,} bytes with {entry.sha256} are expected; "
            "it was damaged on the way or changed at its source, and was not kept"
        )
    progress(f"downloading {entry.name}", entry.bytes, entry.bytes)
    return finished


@contextmanager
def _lock(path: Path, progress: Progress) -> Iterator[None]:
    """Holds the lock file, which the system releases should this process die."""
    started = time.monotonic()
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                progress("waiting for another process that fetches the same model", 0, 0)
            if time.monotonic() - started > _LOCK_DEADLINE_S:
                raise DownloadError(f"another process holds {path} for hours; end it, or remove the file")
            time.sleep(_LOCK_POLL_S)
        yield


def _prefix(entry: Entry) -> str:
    return f".pull-{entry.name}-"


def _sweep(folder: Path, entry: Entry) -> None:
    """Removes what a killed process left. The lock is held, so that nobody is at work there."""
    for left in folder.glob(f"{_prefix(entry)}*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_space(entry: Entry, folder: Path) -> None:
    """A wheel is stored beside what is taken out of it, and twice while pip moves it. Better refused now than after minutes."""
    n_needed = entry.bytes + 2 * entry.bytes // len(entry.parts) + _DISK_MARGIN_BYTES
    n_free = shutil.disk_usage(folder).free
    if n_free < n_needed:
        raise DownloadError(
            f"{entry.name} needs {n_needed / 1e6:,.0f} MB for a moment in {folder}, but {n_free / 1e6:,.0f} MB are free; "
            "free some space or set CAMSHAFT_CACHE to a folder on another disk"
        )


def _disk_error(entry: Entry, folder: Path, error: OSError) -> DownloadError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DownloadError(
            f"the disk of {folder} is full: {entry.name} could not be stored and nothing was kept; "
            "free some space or set CAMSHAFT_CACHE to a folder on another disk"
        )
    return DownloadError(f"cannot store {entry.name} in {folder}: {error.strerror or error}")
