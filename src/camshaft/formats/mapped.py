"""A file as memory."""

from __future__ import annotations

import mmap
from pathlib import Path

from camshaft.errors import ModelError


def map_file(path: Path) -> mmap.mmap:
    """A file as read-only memory. Raises ModelError when it is empty or cannot be read."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) == 0:
                raise ModelError(f"{path.name}: the file is empty")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None


def let_go(data: mmap.mmap) -> None:
    """Takes a map's pages out of this process's memory. They stay in the system's cache, and come back when they are read."""
    data.madvise(mmap.MADV_DONTNEED)
