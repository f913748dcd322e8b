"""Safetensors files and their index: what is read, and that every lie in a header is called one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camshaft.errors import ModelError
from camshaft.formats.safetensors import SafetensorsFolder
from gguf_writer import bf16
from hf_writer import safetensors_bytes, with_header

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def write(folder: Path, content: bytes, name: str = "model.safetensors") -> Path:
    (folder / name).write_bytes(content)
    return folder


def index(folder: Path, weight_map: object) -> Path:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    return folder


def f32(begin: int = 0, end: int = 24, shape: object = (2, 3), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_tensors_of_the_three_types_come_back(tmp_path: Path) -> None:
    tensors = {"x": X, "half": X.astype(np.float16), "brain": bf16(X), "scalar": np.array(1.0, np.float32)}
    folder = SafetensorsFolder(write(tmp_path, safetensors_bytes(tensors)))
    assert {name: (info.type, info.shape) for name, info in folder.tensors.items()} == {
        "x": (0, (2, 3)), "half": (1, (2, 3)), "brain": (30, (2, 3)), "scalar": (0, ()),
    }  # fmt: skip
    assert folder.data(folder.tensors["x"]).tobytes() == X.tobytes()
    assert folder.data(folder.tensors["brain"]).tobytes() == bf16(X).data


def test_shards_are_one_set_of_tensors(tmp_path: Path) -> None:
    write(tmp_path, safetensors_bytes({"a": X}), "model-00001-of-00002.safetensors")
    write(tmp_path, safetensors_bytes({"b": X + 1, "unlisted": X}), "model-00002-of-00002.safetensors")
    folder = SafetensorsFolder(index(tmp_path, {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}))
    assert list(folder.tensors) == ["a", "b"]
    assert folder.data(folder.tensors["b"]).tobytes() == (X + 1).tobytes()
    assert [path.name for path in folder.files] == ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]


@pytest.mark.parametrize(
    "name", ["../secret.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\x.safetensors", "..", "", "x.bin", "x\0.safetensors"]
)
def test_index_cannot_name_files_elsewhere(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"not the name of a \.safetensors file in this folder"):
        SafetensorsFolder(index(tmp_path, {"a": name}))


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({}, "0 files are named"),
        ({"a": "absent.safetensors"}, "cannot read"),
        ({"missing": "model.safetensors"}, "'missing' is not in model.safetensors"),
        ({"a": 3}, "Expected `str`"),
        ([], "Expected `object`"),
        ({f"t{i}": f"{i}.safetensors" for i in range(2000)}, "2000 files are named"),
    ],
)
def test_a_wrong_index_is_refused_by_cause(weight_map: object, message: str, tmp_path: Path) -> None:
    write(tmp_path, safetensors_bytes({"a": X}))
    with pytest.raises(ModelError, match=message):
        SafetensorsFolder(index(tmp_path, weight_map))


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "four bytes": (b"\0\0\0\0", "does not fit"),
    "header past the end": ((1000).to_bytes(8, "little") + b"{}", "does not fit"),
    "header of 2^63": ((1 << 63).to_bytes(8, "little") + b"{}", "does not fit"),
    "header of 20 MB": (with_header(b" " * (20 << 20)), "does not fit"),
    "not JSON": (with_header(b"{nonsense"), "not as safetensors defines"),
    "not UTF-8": (with_header(b'{"\xff": 1}'), "not as safetensors defines"),
    "a list": (with_header([]), "not an object"),
    "nested 100,000 deep": (with_header(b"[" * 100_000), "nested too deeply"),
    "an integer of 10,000 digits": (with_header(b'{"a": ' + b"9" * 10_000 + b"}"), "not as safetensors defines"),
    "twice the same name": (with_header(b'{"a": 1, "a": 2}'), "names a tensor twice"),
    "no dtype": (with_header({"a": {"shape": [1], "data_offsets": [0, 4]}}, bytes(4)), "missing required field `dtype`"),
    "dtype I64": (with_header({"a": f32(dtype="I64")}, bytes(24)), "'a' has type I64, which is not supported; supported: F32 F16 BF16"),
    "negative size": (with_header({"a": f32(shape=[-2, -3])}, bytes(24)), "has shape"),
    "size 0": (with_header({"a": f32(0, 0, [0, 3])}), "has shape"),
    "five dimensions": (with_header({"a": f32(0, 4, [1] * 5)}, bytes(4)), "has shape"),
    "product past 64 bits": (with_header({"a": f32(0, 24, [1 << 62, 1 << 62])}, bytes(24)), "but its offsets are 0 to 24"),
    "offsets backwards": (with_header({"a": f32(24, 0)}, bytes(24)), "offsets are 24 to 0"),
    "offsets negative": (with_header({"a": f32(-24, 0)}, bytes(24)), "offsets are -24 to 0"),
    "offsets too short": (with_header({"a": f32(0, 20)}, bytes(24)), "takes 24 bytes"),
    "cut short": (with_header({"a": f32()}, bytes(23)), "beyond the end"),
    "overlap": (with_header({"a": f32(), "b": f32(4, 28)}, bytes(28)), "'a' and 'b' overlap"),
    "a float as offset": (with_header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4.5]}}, bytes(8)), "Expected `int`"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_refused_by_cause(case: str, tmp_path: Path) -> None:
    content, message = HOSTILE[case]
    with pytest.raises(ModelError, match=message):
        SafetensorsFolder(write(tmp_path, content))


def test_a_folder_without_one_clear_set_of_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no model.safetensors; weights in other formats \(.bin, .pt\) are not read"):
        SafetensorsFolder(tmp_path)
    write(tmp_path, safetensors_bytes({"a": X}), "one.safetensors")
    assert list(SafetensorsFolder(tmp_path).tensors) == ["a"]
    write(tmp_path, safetensors_bytes({"a": X}), "two.safetensors")
    with pytest.raises(ModelError, match=r"holds 2 \.safetensors files and no"):
        SafetensorsFolder(tmp_path)
