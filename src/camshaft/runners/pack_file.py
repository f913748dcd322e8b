"""One model's packed weights as a file, from which a program computes where it lies.

`CAMPACK1`, length and checksum of the header (uint64, little-endian), the header (JSON), then each matrix at a multiple of 64 bytes. Every
matrix has a checksum; together with the header's they cover all that is ever read. A file is believed only if this user alone can
have written it, and all of it is checked before any of it is used: reading 100 MB takes a core some 10 ms, and maps the pages in passing.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec
from msgspec import Struct

from camshaft import _native
from camshaft.formats.cache import open_own

_MAGIC = b"CAMPACK1"
_HEAD = struct.Struct("<8sQQ")
_ALIGN = 64  # what the kernels' loads need
_MOST_HEADER_BYTES = 16 << 20
_BLOCK_BYTES = 2 << 20  # a large page
_DAY_S = 86_400
_MOST_PIECES = 512  # of one call; POSIX grants 1,024 where a system says nothing else


class Matrix(Struct, frozen=True, forbid_unknown_fields=True):
    """A packed matrix of the file. `form` is the native runtime's name; offsets are from the start of the file."""

    name: str
    form: str
    rows: int
    cols: int
    offset: int
    n_bytes: int
    checksum: int


class _Header(Struct, frozen=True, forbid_unknown_fields=True):
    key: str
    n_bytes: int  # of the whole file
    matrices: tuple[Matrix, ...]


class Packed(NamedTuple):
    """A matrix to be written: its bytes are a view of the program's memory."""

    name: str
    form: str
    rows: int
    cols: int
    data: memoryview


class Pack:
    """An opened and checked file."""

    def __init__(self, map: _native.MappedFile, matrices: Iterable[Matrix]) -> None:
        self.map = map
        self._matrices = {m.name: m for m in matrices}

    def find(self, name: str, form: str, rows: int, cols: int) -> Matrix | None:
        """The matrix of this name, if it has this form and shape."""
        found = self._matrices.get(name)
        return found if found is not None and (found.form, found.rows, found.cols) == (form, rows, cols) else None


def read(path: Path, key: str, threads: int) -> Pack | None:
    """The pack with this key, or None where there is none that can be believed."""
    file = open_own(path)
    if file is None:
        return None
    with file:
        header = _read_header(file, key)
        if header is None:
            return None
        _note_use(file.fileno())
        map = _native.MappedFile(file.fileno())
    try:
        intact = map.intact([(m.offset, m.n_bytes, m.checksum) for m in header.matrices], threads)
    except TypeError:  # numbers that are no offsets
        return None
    return Pack(map, header.matrices) if intact else None


def _note_use(fd: int) -> None:
    """Moves the file's time, by which the cache sees what was of no use for longest; once a day, because a busy disk may take seconds."""
    if time.time() - os.fstat(fd).st_mtime > _DAY_S:
        os.utime(fd)


def write(out: BinaryIO, key: str, matrices: Iterable[Packed]) -> Iterator[int]:
    """Writes a pack to an empty file, yielding now and then, so that the caller can stop in the middle: the bytes written so far.

    Raises OSError.
    """
    listed = list(matrices)
    entries, offset = [], 0
    for m in listed:
        entries.append(Matrix(m.name, m.form, m.rows, m.cols, offset, m.data.nbytes, _native.checksum(m.data)))
        offset += _aligned(m.data.nbytes)
        yield 0
    start = _aligned(_HEAD.size + len(_encoded(key, entries, 1 << 50)))
    raw = _encoded(key, entries, start)
    head = _HEAD.pack(_MAGIC, len(raw), _native.checksum(raw)) + raw
    parts = [memoryview(head), *(m.data for m in listed)]
    yield from _write_blocks(out.fileno(), parts, [start, *(_aligned(part.nbytes) for part in parts[1:])])


def _write_blocks(fd: int, parts: Iterable[memoryview], rooms: Iterable[int]) -> Iterator[int]:
    """Writes each part, filled up with zeros to its room, in blocks of exactly `_BLOCK_BYTES` wherever matrices begin and end.

    The system's cache then holds the file in pages of that size, where the file system can, and a step that walks all weights misses the
    TLB a five-hundredth as often.
    """
    block: list[memoryview] = []
    n = written = 0
    for part, room in zip(parts, rooms, strict=True):
        for piece in (part, memoryview(bytes(room - part.nbytes))):
            at = 0
            while at < piece.nbytes:
                taken = piece[at : at + _BLOCK_BYTES - n]
                block.append(taken)
                at, n = at + taken.nbytes, n + taken.nbytes
                if n == _BLOCK_BYTES:
                    written += _write_all(fd, block)
                    block, n = [], 0
                    yield written
    yield written + _write_all(fd, block)


def _write_all(fd: int, block: list[memoryview]) -> int:
    """One call for all pieces; only where it wrote less, a copy and more calls. The bytes written."""
    total = 0
    for first in range(0, len(block), _MOST_PIECES):
        pieces = block[first : first + _MOST_PIECES]
        n = sum(piece.nbytes for piece in pieces)
        sent = os.writev(fd, pieces)
        rest = b"".join(pieces)[sent:] if sent < n else b""
        while rest:
            rest = rest[os.write(fd, rest) :]
        total += n
    return total


def _encoded(key: str, entries: list[Matrix], start: int) -> bytes:
    """The header with all matrices `start` bytes further on."""
    placed = tuple(msgspec.structs.replace(e, offset=start + e.offset) for e in entries)
    end = max((e.offset + _aligned(e.n_bytes) for e in placed), default=start)
    return msgspec.json.encode(_Header(key, end, placed))


def _read_header(file: BinaryIO, key: str) -> _Header | None:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, n, checksum = _HEAD.unpack(head)
    if magic != _MAGIC or n > _MOST_HEADER_BYTES:
        return None
    raw = file.read(n)
    if len(raw) != n or _native.checksum(raw) != checksum:
        return None
    try:
        header = msgspec.json.decode(raw, type=_Header)
        sound = all(m.offset % _ALIGN == 0 and m.n_bytes == _native.packed_bytes(m.form, m.rows, m.cols) for m in header.matrices)
    except (msgspec.DecodeError, ValueError, TypeError):  # no header, a form that is not known, numbers that are no sizes
        return None
    return header if sound and header.key == key and header.n_bytes == os.fstat(file.fileno()).st_size else None


def _aligned(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN
