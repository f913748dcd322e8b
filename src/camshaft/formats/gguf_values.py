"""The primitive values of a GGUF file, read through a cursor that checks each length before it believes it.

Format: GGUF versions 2 and 3, little-endian (the ggml project's docs/gguf.md).
"""

from __future__ import annotations

import struct
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from camshaft import _native
from camshaft.errors import ModelError

MAX_STRING_BYTES = 1 << 24  # the longest in use are chat templates, tens of kilobytes
MAX_ELEMENT_BYTES = 1 << 16  # a string inside an array: a token or a merge
MAX_STRINGS = 1 << 21  # in one file, all arrays together; walking them takes a fraction of a second

STRING, ARRAY = 8, 9
BOOL = 7
# type number -> (struct format, numpy format)
_SCALARS: dict[int, tuple[str, str]] = {
    0: ("<B", "<u1"), 1: ("<b", "<i1"), 2: ("<H", "<u2"), 3: ("<h", "<i2"), 4: ("<I", "<u4"), 5: ("<i", "<i4"),
    6: ("<f", "<f4"), BOOL: ("<B", "<u1"), 10: ("<Q", "<u8"), 11: ("<q", "<i8"), 12: ("<d", "<f8"),
}  # fmt: skip
_U64 = struct.Struct("<Q").unpack_from

Scalar = int | float | bool | str


class GgufArray:
    """An array of the metadata, decoded when it is asked for. Holds a view of the file, no copy."""

    __slots__ = ("_buffer", "_what", "count", "kind")

    def __init__(self, what: str, kind: int, count: int, buffer: memoryview) -> None:
        self._what = what
        self.kind = kind
        self.count = count
        self._buffer = buffer

    def strings(self) -> list[str]:
        """The elements as text. Raises ModelError when they are not strings, or not UTF-8."""
        if self.kind != STRING:
            raise ModelError(f"{self._what} holds numbers where strings are needed")
        out = _native.read_strings(self._buffer, self.count)
        if len(out) < self.count:
            raise ModelError(f"{self._what}: element {len(out)} is not UTF-8")
        return out

    def numbers(self) -> NDArray[np.generic]:
        """The elements as a read-only numpy view of the file. Raises ModelError when they are strings."""
        if self.kind == STRING:
            raise ModelError(f"{self._what} holds strings where numbers are needed")
        return np.frombuffer(self._buffer, dtype=_SCALARS[self.kind][1], count=self.count)


Value = Scalar | GgufArray


class Cursor:
    """A position in a file. Each read checks that what it takes lies inside; `fail` names the file and the byte."""

    __slots__ = ("buffer", "end", "name", "position", "strings_left")

    def __init__(self, name: str, buffer: memoryview) -> None:
        self.name = name
        self.buffer = buffer
        self.position = 0
        self.end = len(buffer)
        self.strings_left = MAX_STRINGS

    def fail(self, why: str) -> NoReturn:
        raise ModelError(f"{self.name}: {why} (at byte {self.position:,} of {self.end:,}); the file is damaged or not a GGUF file")

    def need(self, n: int, what: str) -> None:
        """Checks that n more bytes exist."""
        if n > self.end - self.position:
            self.fail(f"{what} needs {n:,} bytes, beyond the end of the file")

    def scalar(self, kind: int, what: str) -> int | float | bool:
        code = _SCALARS.get(kind)
        if code is None:
            self.fail(f"{what} has the unknown value type {kind}")
        size = struct.calcsize(code[0])
        self.need(size, what)
        (value,) = struct.unpack_from(code[0], self.buffer, self.position)
        if kind == BOOL:
            if value > 1:
                self.fail(f"{what} is a boolean with the value {value}")
            value = bool(value)
        self.position += size
        return value  # type: ignore[no-any-return]

    def u32(self, what: str) -> int:
        return int(self.scalar(4, what))

    def u64(self, what: str) -> int:
        return int(self.scalar(10, what))

    def count(self, limit: int, smallest_bytes: int, what: str) -> int:
        """A number of things that each take at least `smallest_bytes`: refused when there cannot be as many."""
        n = self.u64(what)
        if n > limit:
            self.fail(f"{what} is {n:,}, more than {limit:,}")
        self.need(n * smallest_bytes, f"{what} of {n:,}")
        return n

    def string(self, what: str, limit: int = MAX_STRING_BYTES) -> str:
        n = self.u64(f"the length of {what}")
        if n > limit:
            self.fail(f"{what} is {n:,} bytes long, more than {limit:,}")
        self.need(n, what)
        raw = self.buffer[self.position : self.position + n]
        try:
            text = str(raw, "utf-8")
        except UnicodeDecodeError:
            self.fail(f"{what} is not UTF-8")
        self.position += n
        return text

    def value(self, what: str) -> Value:
        """A typed value: a scalar, a string, or an array that is checked but not decoded."""
        kind = self.u32(f"the type of {what}")
        if kind == STRING:
            return self.string(what)
        return self.array(what) if kind == ARRAY else self.scalar(kind, what)

    def array(self, what: str) -> GgufArray:
        kind = self.u32(f"the element type of {what}")
        if kind == ARRAY:
            self.fail(f"{what} is an array of arrays, which no supported model uses")
        if kind == STRING:
            count = self.count(self.strings_left, 8, f"the length of {what}")
            self.strings_left -= count
            start = self.position
            self._skip_strings(count, what)
        else:
            if kind not in _SCALARS:
                self.fail(f"{what} has the unknown element type {kind}")
            size = struct.calcsize(_SCALARS[kind][0])
            count = self.count(self.end, size, f"the length of {what}")
            start = self.position
            self.position += count * size
        return GgufArray(f"{self.name}: {what}", kind, count, self.buffer[start : self.position])

    def _skip_strings(self, count: int, what: str) -> None:
        n, self.position = _native.skip_strings(self.buffer, self.position, count, MAX_ELEMENT_BYTES)
        if n == count:
            return
        if self.position > self.end - 8:
            self.fail(f"a string of {what} lies beyond the end of the file")
        n_bytes = _U64(self.buffer, self.position)[0]
        if n_bytes > MAX_ELEMENT_BYTES:
            self.fail(f"a string of {what} is {n_bytes:,} bytes long, more than {MAX_ELEMENT_BYTES:,}")
        self.fail(f"a string of {what} lies beyond the end of the file")
