"""The GGUF reader: what it finds, and that every lie in a file is called one."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from camshaft.errors import ModelError
from camshaft.formats.gguf import GgufFile
from gguf_writer import Encoded, gguf_bytes, write_gguf

ONE = {"a": np.arange(64, dtype=np.float32)}


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def head(n_tensors: int = 0, n_metadata: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_metadata)


def entry(name: str = "a", dims: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0, n_dims: int | None = None) -> bytes:
    return string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims) if n_dims is None else n_dims, *dims, kind, offset)


def tensors(*entries: bytes, n_bytes: int = 4096) -> bytes:
    """A file of these tensor entries with n_bytes of data behind them."""
    return head(n_tensors=len(entries)) + b"".join(entries) + bytes(n_bytes)


def metadata(*entries: bytes, more: bytes = bytes(64)) -> bytes:
    return head(n_metadata=len(entries)) + b"".join(entries) + more


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("alignment", [32, 64, 4096])
def test_values_and_tensors_come_back(version: int, alignment: int, tmp_path: Path) -> None:
    values = {
        "general.alignment": alignment, "int": 7, "negative": -7, "large": 1 << 40, "real": 0.5, "yes": True, "no": False,
        "text": "Zürich ▁x", "strings": ["", "a", "ä" * 1000], "numbers": np.array([1, -2, 3], np.int16), "reals": np.array([0.5, 1.5]),
    }  # fmt: skip
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.arange(5, dtype=np.float16)
    file = GgufFile(write_gguf(tmp_path / "f.gguf", values, {"x": x, "y": y}, version=version, alignment=alignment))
    assert file.version == version
    assert [file.integer(k) for k in ("int", "negative", "large")] == [7, -7, 1 << 40]
    assert (file.number("real"), file.flag("yes"), file.flag("no"), file.text("text")) == (0.5, True, False, "Zürich ▁x")
    assert file.metadata["strings"].strings() == ["", "a", "ä" * 1000]  # type: ignore[union-attr]
    assert file.metadata["numbers"].numbers().tolist() == [1, -2, 3]  # type: ignore[union-attr]
    assert file.metadata["reals"].numbers().tolist() == [0.5, 1.5]  # type: ignore[union-attr]
    assert file.tensors["x"].shape == (2, 3)
    assert file.data(file.tensors["x"]).tobytes() == x.tobytes()
    assert file.data(file.tensors["y"]).tobytes() == y.tobytes()


def test_data_outlives_the_file_object_and_is_read_only(tmp_path: Path) -> None:
    data = GgufFile(write_gguf(tmp_path / "f.gguf", {}, ONE)).data(GgufFile(tmp_path / "f.gguf").tensors["a"])
    assert data.view(np.float32)[63] == 63
    with pytest.raises(ValueError):
        data[0] = 1


def test_getters_name_the_key_and_what_it_should_be(tmp_path: Path) -> None:
    file = GgufFile(write_gguf(tmp_path / "f.gguf", {"n": 1, "t": "x", "b": True}, {}))
    for call, message in (
        (lambda: file.integer("absent"), "lacks 'absent', which must be an integer"),
        (lambda: file.integer("b"), "'b' is not an integer"),
        (lambda: file.number("t"), "'t' is not a number"),
        (lambda: file.text("n"), "'n' is not a string"),
        (lambda: file.flag("n"), "'n' is not a boolean"),
        (lambda: file.array("n"), "'n' is not an array"),
    ):
        with pytest.raises(ModelError, match=message):
            call()
    assert (file.integer("absent", 3), file.array("absent")) == (3, None)


HOSTILE = {
    "empty": (b"", "empty"),
    "three bytes": (b"GGU", "beyond the end"),
    "another format": (b"PK\x03\x04" + bytes(64), "does not start with GGUF"),
    "version 1": (head(version=1) + bytes(64), "version 1 is not supported"),
    "version 4": (head(version=4) + bytes(64), "version 4 is not supported"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
    "2^63 tensors": (head(n_tensors=1 << 63), "number of tensors is 9,223,372,036,854,775,808"),
    "more tensors than fit": (head(n_tensors=60_000) + bytes(1000), "beyond the end"),
    "2^32 metadata entries": (head(n_metadata=1 << 32), "number of metadata entries"),
    "more metadata than fits": (head(n_metadata=1000) + bytes(100), "beyond the end"),
    "key length 2^64-1": (head(n_metadata=1) + b"\xff" * 8 + bytes(64), "more than 1,024"),
    "key beyond the end": (head(n_metadata=1) + struct.pack("<Q", 900) + bytes(64), "beyond the end"),
    "key not UTF-8": (metadata(struct.pack("<Q", 2) + b"\xff\xfe" + bytes(8)), "not UTF-8"),
    "unknown value type": (metadata(string("k") + struct.pack("<I", 13)), "unknown value type 13"),
    "boolean 2": (metadata(string("k") + struct.pack("<IB", 7, 2)), "boolean with the value 2"),
    "string of 2^62": (metadata(string("k") + struct.pack("<IQ", 8, 1 << 62)), "more than 16,777,216"),
    "string beyond the end": (metadata(string("k") + struct.pack("<IQ", 8, 1 << 20)), "beyond the end"),
    "value beyond the end": (metadata(string("k") + struct.pack("<I", 10), more=b"\0\0\0\0"), "beyond the end"),
    "array of arrays": (metadata(string("k") + struct.pack("<IIQ", 9, 9, 1)), "array of arrays"),
    "array of unknowns": (metadata(string("k") + struct.pack("<IIQ", 9, 99, 1)), "unknown element type 99"),
    "2^61 numbers": (metadata(string("k") + struct.pack("<IIQ", 9, 10, 1 << 61)), "length of metadata 'k'"),
    "numbers beyond the end": (metadata(string("k") + struct.pack("<IIQ", 9, 4, 100)), "beyond the end"),
    "2^60 strings": (metadata(string("k") + struct.pack("<IIQ", 9, 8, 1 << 60)), "more than 2,097,152"),
    "strings beyond the end": (metadata(string("k") + struct.pack("<IIQ", 9, 8, 9), more=bytes(64)), "beyond the end"),
    "a string of an array beyond the end": (metadata(string("k") + struct.pack("<IIQQ", 9, 8, 2, 60_000)), "beyond the end"),
    "a string of an array of 2^40": (metadata(string("k") + struct.pack("<IIQQ", 9, 8, 2, 1 << 40)), "bytes long"),
    "the last string beyond the end": (metadata(string("k") + struct.pack("<IIQQ", 9, 8, 1, 65_000)), "beyond the end"),
    "duplicate key": (metadata(*[string("k") + struct.pack("<IB", 0, 1)] * 2), "'k' occurs twice"),
    "alignment 0": (gguf_bytes({"general.alignment": 0}, ONE), "power of two"),
    "alignment 24": (gguf_bytes({"general.alignment": 24}, ONE), "power of two"),
    "alignment 2^30": (gguf_bytes({"general.alignment": 1 << 30}, ONE), "power of two"),
    "alignment in words": (gguf_bytes({"general.alignment": "32"}, ONE), "not an integer"),
    "duplicate tensor": (tensors(entry("a"), entry("a", offset=128)), "'a' occurs twice"),
    "no dimension": (tensors(entry(dims=(), n_dims=0)), "0 dimensions"),
    "five dimensions": (tensors(entry(dims=(1, 1, 1, 1, 1))), "5 dimensions"),
    "2^32-1 dimensions": (tensors(entry(n_dims=(1 << 32) - 1)), "4294967295 dimensions"),
    "a dimension of 0": (tensors(entry(dims=(32, 0))), "dimension of 0"),
    "a product past 64 bits": (tensors(entry(dims=(1 << 32, 1 << 32, 1 << 32))), "beyond the end"),
    "a product that wraps to 0": (tensors(entry(dims=(1 << 32, 1 << 32))), "beyond the end"),
    "a row that ends in a block": (tensors(entry(dims=(33, 2), kind=8)), "multiples of 32"),
    "an unaligned offset": (tensors(entry(offset=4)), "not a multiple of the alignment"),
    "an offset past the end": (tensors(entry(offset=1 << 20)), "beyond the end"),
    "an offset of 2^64-32": (tensors(entry(offset=(1 << 64) - 32)), "beyond the end"),
    "a tensor cut short": (tensors(entry(dims=(64,)), n_bytes=128), "beyond the end"),
    "overlap": (tensors(entry("a", dims=(64,)), entry("b", offset=128)), "'a' and 'b' overlap"),
    "the same place": (tensors(entry("a"), entry("b")), "overlap"),
    "a name of 2^16": (tensors(entry("n" * 65_536)), "more than 1,024"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_file_is_refused_by_cause(case: str, tmp_path: Path) -> None:
    data, message = HOSTILE[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        GgufFile(path)
    assert "bad.gguf" in caught.value.message


@pytest.mark.parametrize(("kind", "name"), [(17, "IQ2_XS"), (39, "MXFP4"), (28, "F64"), (99, "type 99")])
def test_unsupported_tensor_type_is_named_with_what_is_supported(kind: int, name: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "f.gguf", {}, {"a": Encoded(kind, (256,), bytes(256))})
    with pytest.raises(ModelError, match=f"tensor 'a' has type {name}, which is not supported; supported: F32 F16 Q4_0"):
        GgufFile(path)


def test_missing_file_and_folder_are_clear(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.gguf", tmp_path):
        with pytest.raises(ModelError, match="cannot read"):
            GgufFile(path)


def test_array_elements_are_checked_when_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "f.gguf"
    bad = string("k") + struct.pack("<IIQ", 9, 8, 2) + string("fine") + struct.pack("<Q", 1) + b"\xff"
    path.write_bytes(metadata(bad))
    array = GgufFile(path).array("k")
    assert array is not None
    with pytest.raises(ModelError, match="element 1 is not UTF-8"):
        array.strings()
    with pytest.raises(ModelError, match="strings where numbers"):
        array.numbers()
    numbers = GgufFile(write_gguf(path, {"k": np.array([1])}, {})).array("k")
    assert numbers is not None
    with pytest.raises(ModelError, match="numbers where strings"):
        numbers.strings()
