"""The folder of everything that can be fetched or computed again, and what may be believed of what lies in it."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def cache_dir(env: Mapping[str, str] = os.environ) -> Path:
    """$CAMSHAFT_CACHE, $XDG_CACHE_HOME/camshaft or ~/.cache/camshaft."""
    if env.get("CAMSHAFT_CACHE"):
        return Path(env["CAMSHAFT_CACHE"]).expanduser()
    base = env.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "camshaft"


def open_own(path: Path) -> BinaryIO | None:
    """A file that this user alone can have written, for reading; None where it is missing, a link, another's, or open to others' writes."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    file = os.fdopen(fd, "rb", buffering=0)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022:
        return file
    file.close()
    return None


@contextmanager
def whole_or_nothing(path: Path, prefix: str, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which gets its name once all of it is written. After an error nothing of it is left. Raises OSError.

    `durable` waits for the disk first. Without it a crash of the machine may leave the name with less than all: for small files that
    are checked when they are read, and written where nobody has the seconds that a busy disk takes.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd, name = tempfile.mkstemp(prefix=prefix, dir=path.parent)  # for this user alone
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(fd)
        os.replace(name, path)
    finally:
        with suppress(OSError):  # renamed by now, if all went well
            os.unlink(name)
