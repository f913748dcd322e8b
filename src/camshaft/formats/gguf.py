"""A GGUF file, memory-mapped: its metadata and where its tensors lie. Nothing in the file is believed before it is checked.

Versions 2 and 3, little-endian (the ggml project's docs/gguf.md). Opening reads the header only; tensor bytes are touched when used.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from camshaft.errors import ModelError
from camshaft.formats import dtypes
from camshaft.formats.gguf_values import Cursor, GgufArray, Value
from camshaft.formats.mapped import let_go, map_file
from camshaft.formats.tensors import TensorInfo

MAX_METADATA = 65_536
MAX_TENSORS = 65_536
MAX_NAME_BYTES = 1024
MAX_ALIGNMENT = 1 << 16
_DEFAULT_ALIGNMENT = 32


class GgufFile:
    """The checked header of a GGUF file. Owns the map, which lives as long as this object or any view handed out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._map = map_file(path)
        cursor = Cursor(path.name, memoryview(self._map))
        self.version, n_tensors, n_metadata = _read_head(cursor)
        self.metadata = _read_metadata(cursor, n_metadata)
        self.tensors = _read_tensors(cursor, n_tensors, self._alignment(cursor))

    @property
    def file_bytes(self) -> int:
        return len(self._map)

    def data(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The tensor's bytes: a read-only view of the file."""
        return np.frombuffer(self._map, dtype=np.uint8, count=info.n_bytes, offset=info.offset)

    def rest(self) -> None:
        """Nothing will be read for a while: the file's pages need not stay in memory."""
        let_go(self._map)

    def integer(self, key: str, default: int | None = None) -> int:
        """An integer of the metadata. Raises ModelError when it is absent without a default, or of another type."""
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "an integer")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self.metadata.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(key, value, "a number")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.metadata.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a string")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        value = self.metadata.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "a boolean")
        return value

    def array(self, key: str) -> GgufArray | None:
        """An array of the metadata, or None where there is none of that name."""
        value = self.metadata.get(key)
        if value is not None and not isinstance(value, GgufArray):
            raise self._wrong(key, value, "an array")
        return value

    def _alignment(self, cursor: Cursor) -> int:
        alignment = self.integer("general.alignment", _DEFAULT_ALIGNMENT)
        if not 1 <= alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
            cursor.fail(f"general.alignment is {alignment:,}, not a power of two up to {MAX_ALIGNMENT:,}")
        return alignment

    def _wrong(self, key: str, value: object, wanted: str) -> ModelError:
        if value is None:
            return ModelError(f"{self.path.name}: the metadata lacks {key!r}, which must be {wanted}")
        return ModelError(f"{self.path.name}: metadata {key!r} is not {wanted}")


def _read_head(cursor: Cursor) -> tuple[int, int, int]:
    """(version, number of tensors, number of metadata entries)."""
    cursor.need(4, "the magic number")
    if bytes(cursor.buffer[:4]) != b"GGUF":
        cursor.fail("it does not start with GGUF")
    cursor.position = 4
    version = cursor.u32("the version")
    if version not in (2, 3):
        big = version and not version & 0xFFFF
        what = "a big-endian file" if big else f"GGUF version {version}"
        raise ModelError(f"{cursor.name}: {what} is not supported; versions 2 and 3, little-endian, are: convert the model again")
    # The smallest tensor entry: name length, dimension count, one dimension, type, offset.
    # The smallest metadata entry: key length, type, one byte of value.
    n_tensors = cursor.count(MAX_TENSORS, 32, "the number of tensors")
    n_metadata = cursor.count(MAX_METADATA, 13, "the number of metadata entries")
    return version, n_tensors, n_metadata


def _read_metadata(cursor: Cursor, count: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for index in range(count):
        key = cursor.string(f"metadata key {index}", MAX_NAME_BYTES)
        if key in found:
            cursor.fail(f"metadata key {key!r} occurs twice")
        found[key] = cursor.value(f"metadata {key!r}")
    return found


def _read_tensors(cursor: Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    found: dict[str, TensorInfo] = {}
    for index in range(count):
        info = _read_tensor(cursor, index, alignment)
        if info.name in found:
            cursor.fail(f"tensor {info.name!r} occurs twice")
        found[info.name] = info
    data_start = (cursor.position + alignment - 1) // alignment * alignment
    placed = {info.name: info._replace(offset=data_start + info.offset) for info in found.values()}
    _check_places(cursor, placed)
    return placed


def _read_tensor(cursor: Cursor, index: int, alignment: int) -> TensorInfo:
    """One entry of the tensor table, its offset still relative to the data."""
    name = cursor.string(f"the name of tensor {index}", MAX_NAME_BYTES)
    n_dims = cursor.u32(f"the dimension count of tensor {name!r}")
    if not 1 <= n_dims <= 4:
        cursor.fail(f"tensor {name!r} has {n_dims} dimensions, not 1 to 4")
    dims = [cursor.u64(f"a dimension of tensor {name!r}") for _ in range(n_dims)]
    kind = cursor.u32(f"the type of tensor {name!r}")
    offset = cursor.u64(f"the offset of tensor {name!r}")
    if kind not in dtypes.SUPPORTED:
        refusal = f"has type {dtypes.type_name(kind)}, which is not supported; supported: {dtypes.supported_names()}"
        raise ModelError(f"{cursor.name}: tensor {name!r} {refusal}")
    if min(dims) < 1:
        cursor.fail(f"tensor {name!r} has a dimension of 0")
    try:
        n_bytes = dtypes.row_bytes(kind, dims[0])
    except ValueError as error:
        cursor.fail(f"tensor {name!r}: {error}")
    # Python's integers do not overflow, so a product too large simply fails the comparison.
    for n in dims[1:]:
        n_bytes *= n
    if n_bytes > cursor.end or offset > cursor.end:
        cursor.fail(f"tensor {name!r} ({n_bytes:,} bytes at offset {offset:,}) lies beyond the end of the file")
    if offset % alignment:
        cursor.fail(f"the offset {offset:,} of tensor {name!r} is not a multiple of the alignment, {alignment}")
    return TensorInfo(name, kind, tuple(reversed(dims)), offset, n_bytes)


def _check_places(cursor: Cursor, tensors: dict[str, TensorInfo]) -> None:
    """Each tensor lies in the file and on bytes of its own: two names for the same bytes are a sign of damage."""
    taken, owner = 0, ""
    for info in sorted(tensors.values(), key=lambda t: t.offset):
        if info.offset < taken:
            cursor.fail(f"tensors {owner!r} and {info.name!r} overlap")
        taken, owner = info.offset + info.n_bytes, info.name
        if taken > cursor.end:
            cursor.fail(f"tensor {info.name!r} lies beyond the end of the file, which is cut short or damaged")
