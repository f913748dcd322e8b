"""The sha256 of large files, computed once for as long as they stay the same.

Reading 100 MB takes longer than all the rest of a start, so what was found is kept with a *stamp* of each file: device, inode, size, time
of the last write and time of the last change of any kind. A replaced file has another inode, and whoever writes to a file in place
moves its change time, which, unlike the write time, no program can set. One hole remains: a write so soon after the reading that the
file system's clock still shows the same time. So a digest is kept only where the last change lay `_SETTLED_NS` back when reading began, as
Git does for its index. A record that this user did not write, or that others can write to, counts for nothing.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from camshaft.formats.cache import cache_dir, open_own, whole_or_nothing

_CHUNK_BYTES = 1 << 22
_SETTLED_NS = 2_000_000_000  # the coarsest clock of a file system in use
_MOST_RECORD_BYTES = 1 << 20
SMALL_BYTES = 8 << 20  # read sooner than looked up


class Stamp(Struct, frozen=True):
    """What changes when a file does."""

    device: int
    inode: int
    size: int
    written_ns: int
    changed_ns: int


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A digest, and the files that it is of."""

    stamps: tuple[Stamp, ...]
    sha256: str


def known(files: Sequence[Path]) -> str | None:
    """The sha256 of the files' joined content, if it was computed before and they have not changed since."""
    file = open_own(_place(files))
    if file is None:
        return None
    try:
        with file:
            raw = file.read(_MOST_RECORD_BYTES)
        record = msgspec.json.decode(raw, type=Record)
        return record.sha256 if record.stamps == _stamps(files) else None
    except (msgspec.DecodeError, OSError):
        return None


def sha256(files: Sequence[Path]) -> str:
    """The sha256 of the files' joined content, in hex: remembered, or read and remembered. Raises OSError where one cannot be read."""
    return known(files) or _read(files)


def remember(files: Sequence[Path], sha256: str) -> None:
    """Keeps a digest that is known to be that of the files as they are now. Where nothing can be written, nothing is kept."""
    with suppress(OSError), whole_or_nothing(_place(files), ".digest-", durable=False) as out:
        out.write(msgspec.json.encode(Record(_stamps(files), sha256)))


def _read(files: Sequence[Path]) -> str:
    before, began_ns = _stamps(files), time.time_ns()
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                digest.update(chunk)
    found = digest.hexdigest()
    settled = all(stamp.changed_ns < began_ns - _SETTLED_NS for stamp in before)
    if settled and before == _stamps(files) and sum(stamp.size for stamp in before) >= SMALL_BYTES:
        remember(files, found)
    return found


def _stamps(files: Sequence[Path]) -> tuple[Stamp, ...]:
    found = [path.stat() for path in files]
    return tuple(Stamp(f.st_dev, f.st_ino, f.st_size, f.st_mtime_ns, f.st_ctime_ns) for f in found)


def _place(files: Sequence[Path]) -> Path:
    """Where the record of these files lies: named after their paths, so that a changed file's record is replaced and not added to."""
    names = "\0".join(os.path.realpath(path) for path in files)
    return cache_dir() / "digests" / f"{hashlib.sha256(names.encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"
