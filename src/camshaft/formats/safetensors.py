"""Tensors of a Hugging Face folder: safetensors files, memory-mapped, whose header is checked before it is used.

Format: an 8-byte little-endian length, a JSON header of that length {name: {dtype, shape, data_offsets}}, then the tensors' bytes
(the safetensors project's README).
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from camshaft.errors import ModelError
from camshaft.formats import dtypes
from camshaft.formats.json_file import read_json
from camshaft.formats.mapped import let_go, map_file
from camshaft.formats.tensors import TensorInfo

MAX_HEADER_BYTES = 16 << 20  # about a hundred bytes a tensor in real files
MAX_TENSORS = 65_536
MAX_SHARDS = 1024
_TYPES = {"F32": dtypes.F32, "F16": dtypes.F16, "BF16": dtypes.BF16}

INDEX_NAME = "model.safetensors.index.json"
SINGLE_NAME = "model.safetensors"


class _Entry(Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _Index(Struct, frozen=True):
    weight_map: dict[str, str]


class _Shard(NamedTuple):
    map: mmap.mmap
    tensors: dict[str, TensorInfo]


class SafetensorsFolder:
    """All tensors of a folder, in one file or in shards. Owns the maps, which live as long as this object or any view handed out."""

    def __init__(self, folder: Path) -> None:
        self.files, chosen = _find(folder)
        shards = {path.name: _open(path) for path in self.files}
        self._maps: dict[str, mmap.mmap] = {}
        self._tensors: dict[str, TensorInfo] = {}
        wanted = chosen or dict.fromkeys(shards[self.files[0].name].tensors, self.files[0].name)
        for name, file in wanted.items():
            info = shards[file].tensors.get(name)
            if info is None:
                raise ModelError(f"{folder.name}/{INDEX_NAME}: tensor {name!r} is not in {file}, where the index says it is")
            self._tensors[name] = info
            self._maps[name] = shards[file].map

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def data(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The tensor's bytes: a read-only view of its file."""
        return np.frombuffer(self._maps[info.name], dtype=np.uint8, count=info.n_bytes, offset=info.offset)

    def rest(self) -> None:
        """Nothing will be read for a while: the files' pages need not stay in memory."""
        for data in self._maps.values():
            let_go(data)


def _find(folder: Path) -> tuple[tuple[Path, ...], dict[str, str]]:
    """The files to open and, where there is an index, which file holds each tensor."""
    index = folder / INDEX_NAME
    if index.exists():
        chosen = read_json(index, _Index).weight_map
        names = sorted(set(chosen.values()))
        if not names or len(names) > MAX_SHARDS:
            raise ModelError(f"{index}: {len(names)} files are named, not 1 to {MAX_SHARDS}")
        for name in names:
            # The index comes from outside: a name that is a path could point anywhere on this machine.
            if name != Path(name).name or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
                raise ModelError(f"{index}: {name!r} is not the name of a .safetensors file in this folder")
        return tuple(folder / name for name in names), chosen
    single = folder / SINGLE_NAME
    found = [single] if single.exists() else sorted(folder.glob("*.safetensors"))
    if len(found) != 1:
        problem = "holds no model.safetensors" if not found else f"holds {len(found)} .safetensors files and no {INDEX_NAME}"
        raise ModelError(f"{folder} {problem}; weights in other formats (.bin, .pt) are not read")
    return tuple(found), {}


def _open(path: Path) -> _Shard:
    data = map_file(path)
    n = int.from_bytes(data[:8], "little")
    if len(data) < 8 or n > len(data) - 8 or n > MAX_HEADER_BYTES:
        raise ModelError(f"{path.name}: the header of {n:,} bytes does not fit; the file is damaged or not a safetensors file")
    header = _header(path.name, data[8 : 8 + n])
    tensors = {name: _info(path.name, name, entry, 8 + n) for name, entry in header.items()}
    taken, owner = 8 + n, ""
    for info in sorted(tensors.values(), key=lambda t: t.offset):
        if info.offset < taken:
            raise ModelError(f"{path.name}: tensors {owner!r} and {info.name!r} overlap")
        taken, owner = info.offset + info.n_bytes, info.name
        if taken > len(data):
            raise ModelError(f"{path.name}: tensor {info.name!r} lies beyond the end of the file, which is cut short or damaged")
    return _Shard(data, tensors)


def _header(where: str, raw: bytes) -> dict[str, _Entry]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ModelError(f"{where}: the header names a tensor twice")
        return found

    try:
        # The standard decoder, because it alone shows keys that occur twice.
        fields = json.loads(raw.decode(), object_pairs_hook=unique)
        if not isinstance(fields, dict) or len(fields) > MAX_TENSORS:
            raise ModelError(f"{where}: the header is not an object of at most {MAX_TENSORS:,} tensors")
        fields.pop("__metadata__", None)
        return msgspec.convert(fields, dict[str, _Entry])
    except RecursionError:
        raise ModelError(f"{where}: the header is nested too deeply") from None
    except (ValueError, msgspec.ValidationError) as error:
        raise ModelError(f"{where}: the header is not as safetensors defines it: {error}") from None


def _info(where: str, name: str, entry: _Entry, data_start: int) -> TensorInfo:
    begin, end = entry.data_offsets
    kind = _TYPES.get(entry.dtype)
    if kind is None:
        raise ModelError(f"{where}: tensor {name!r} has type {entry.dtype}, which is not supported; supported: {' '.join(_TYPES)}")
    if len(entry.shape) > 4 or any(n < 1 for n in entry.shape):
        raise ModelError(f"{where}: tensor {name!r} has shape {list(entry.shape)}; 0 to 4 dimensions of 1 or more are possible")
    n_bytes = dtypes.SUPPORTED[kind].block_bytes
    for n in entry.shape:
        n_bytes *= n
    if not 0 <= begin <= end or end - begin != n_bytes:
        raise ModelError(f"{where}: tensor {name!r} takes {n_bytes:,} bytes, but its offsets are {begin:,} to {end:,}")
    return TensorInfo(name, kind, entry.shape, data_start + begin, n_bytes)
