"""Packed weights of an earlier start give the same bits, and nothing that is damaged, foreign or stale is ever computed from."""

from __future__ import annotations

import os
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.formats import digest
from camshaft.formats.open import open_model
from camshaft.runners import pack_cache, pack_file
from camshaft.runners.cpu import CpuRunner
from camshaft.runners.pack_cache import PackCache, key_of
from camshaft.runners.pack_file import Packed
from drive import run_alone
from gguf_writer import Tiny, tiny_model

CONFIG = EngineConfig(block_size=16, kv_memory="1M", threads=2, max_num_seqs=2, max_num_batched_tokens=64)
PROMPT = [5, 9, 200, 31, 7, 77, 150, 12, 3, 90, 61]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMSHAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digest, "SMALL_BYTES", 0)
    monkeypatch.setattr(digest, "_SETTLED_NS", -10_000_000_000)  # the model has only just been written
    monkeypatch.setattr(pack_cache, "WORTH_KEEPING_BYTES", 0)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_model(tmp_path / "m.gguf", Tiny(weights="Q4_1", tied=False))


def start(path: Path, config: EngineConfig = CONFIG) -> tuple[bool, NDArray[np.float32]]:
    """One start and its end: whether its weights were mapped, and its logits."""
    runner = CpuRunner(open_model(path), config)
    mapped, logits = runner.loaded.mapped, run_alone(runner, PROMPT, 64)
    runner.close()
    return mapped, logits


def packs(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "packed").glob("*"))


def test_the_second_start_maps_what_the_first_one_packed_and_gives_its_bits(model: Path, tmp_path: Path) -> None:
    first, second = start(model), start(model)
    assert (first[0], second[0]) == (False, True)
    assert first[1].tobytes() == second[1].tobytes()
    assert len(packs(tmp_path)) == 1


def test_what_a_start_asks_of_the_packer_is_part_of_the_name(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf", Tiny(weights="BF16", tied=True))
    assert [start(path, replace(CONFIG, quantize=q))[0] for q in ("none", "q8", "q4", "none", "q8", "q4")] == [False] * 3 + [True] * 3
    assert start(path, replace(CONFIG, compute="f32", threads=1, kv_dtype="f32"))[0]  # these decide nothing about the bytes
    assert len(packs(tmp_path)) == 3


def test_a_replaced_model_is_packed_anew(model: Path, tmp_path: Path) -> None:
    start(model)
    other = tiny_model(tmp_path / "other.gguf", Tiny(weights="Q4_1", tied=False, seed=1))
    _, want = start(other)
    times = model.stat()
    other.replace(model)
    os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
    mapped, logits = start(model)
    assert logits.tobytes() == want.tobytes()
    assert mapped or len(packs(tmp_path)) == 2  # the same content has the same name, wherever it lies


def test_any_damaged_byte_is_noticed_and_the_pack_made_anew(model: Path, tmp_path: Path) -> None:
    _, want = start(model)
    (pack,) = packs(tmp_path)
    whole = pack.read_bytes()
    header_end = 24 + struct.unpack_from("<Q", whole, 8)[0]
    first = msgspec.json.decode(whole[24:header_end])["matrices"][0]["offset"]
    for at in (0, 7, 8, 16, 23, 24, 60, header_end - 1, first, len(whole) // 2, len(whole) - 1):
        pack.write_bytes(whole[:at] + bytes((whole[at] ^ 0x10,)) + whole[at + 1 :])
        mapped, logits = start(model)
        assert not mapped, at
        assert logits.tobytes() == want.tobytes()
        assert pack.read_bytes() == whole


def test_a_pack_of_another_length_is_made_anew(model: Path, tmp_path: Path) -> None:
    start(model)
    (pack,) = packs(tmp_path)
    whole = pack.read_bytes()
    for content in (b"", whole[:10], whole[:24], whole[:100], whole[:-1], whole + b"\0"):
        pack.write_bytes(content)
        assert not start(model)[0]
        assert start(model)[0]


def test_a_pack_of_others_or_open_to_their_writes_is_not_believed(model: Path, tmp_path: Path) -> None:
    start(model)
    (pack,) = packs(tmp_path)
    pack.chmod(0o622)
    assert not start(model)[0]
    real = pack.rename(tmp_path / "elsewhere")
    pack.symlink_to(real)
    assert not start(model)[0]
    assert start(model)[0]
    assert not pack.is_symlink()


def forged(pack: Path, **changes: object) -> bytes:
    """The pack with other facts about its first matrix, under a header whose checksum is right."""
    whole = pack.read_bytes()
    n = struct.unpack_from("<Q", whole, 8)[0]
    header = msgspec.json.decode(whole[24 : 24 + n])
    header["matrices"][0] |= changes
    raw = msgspec.json.encode(header)
    return struct.pack("<8sQQ", b"CAMPACK1", len(raw), _native.checksum(raw)) + raw + whole[24 + len(raw) :]


@pytest.mark.parametrize(
    "changes",
    [
        {"offset": 1 << 60}, {"offset": -64}, {"offset": 1 << 70}, {"offset": 8}, {"n_bytes": 1 << 60}, {"n_bytes": 0}, {"rows": 1 << 40},
        {"rows": 0}, {"cols": -32}, {"form": "q9"}, {"form": "f32"}, {"checksum": -1}, {"extra": 1},
    ],
)  # fmt: skip
def test_a_header_that_lies_is_not_believed(model: Path, tmp_path: Path, changes: dict[str, object]) -> None:
    _, want = start(model)
    (pack,) = packs(tmp_path)
    pack.write_bytes(forged(pack, **changes))
    mapped, logits = start(model)
    assert not mapped
    assert logits.tobytes() == want.tobytes()


def test_a_pack_under_another_ones_name_is_not_believed(model: Path, tmp_path: Path) -> None:
    start(model)
    start(tiny_model(tmp_path / "other.gguf", Tiny(weights="Q4_1", tied=False, seed=1)))
    one, two = packs(tmp_path)
    one.write_bytes(two.read_bytes())
    two.unlink()
    assert not start(model)[0]


def test_without_room_nothing_is_kept(model: Path, tmp_path: Path) -> None:
    off = replace(CONFIG, weight_cache_gb=0.0)
    assert [start(model, off)[0] for _ in range(2)] == [False, False]
    assert packs(tmp_path) == []
    start(model)
    assert not start(model, off)[0]


def matrix(seed: int, n: int = 4096) -> Packed:
    rows = n // 544
    data = np.random.default_rng(seed).integers(0, 255, rows * 544, np.uint8).data
    return Packed("m", "q8", rows * 16, 32, data)


def kept(cache: PackCache, key: str, packed: Packed) -> None:
    writing = cache.keep(key, [packed])
    assert writing is not None
    writing.end()


def test_the_folder_stays_within_its_size_and_what_was_of_no_use_for_longest_goes_first(tmp_path: Path) -> None:
    cache = PackCache(tmp_path / "packed", 14_000)
    for age, key in enumerate(("c", "b", "a")):
        kept(cache, key, matrix(age))
        os.utime(tmp_path / "packed" / f"{key}.pack", (1000 + age, 1000 + age))
    assert cache.find("c", 1) is not None  # and so it is the youngest
    kept(cache, "d", matrix(4))
    assert sorted(p.stem for p in packs_in(tmp_path)) == ["a", "c", "d"]
    assert cache.keep("e", [matrix(5, 20_000)]) is None


def packs_in(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "packed").iterdir())


def test_writers_and_readers_at_once_never_meet_half_a_pack(tmp_path: Path) -> None:
    packed = matrix(1, 200_000)
    cache = PackCache(tmp_path / "packed", 1 << 30)
    ended = threading.Event()
    seen: list[bool] = []

    def read() -> None:
        while not ended.is_set():
            pack = pack_file.read(tmp_path / "packed" / "k.pack", "k", 1)
            seen.append(pack is not None)

    kept(cache, "k", packed)
    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    writings = [cache.keep("k", [packed]) for _ in range(20)]
    for writing in writings:
        assert writing is not None
        writing.end()
    ended.set()
    for reader in readers:
        reader.join()
    assert seen
    assert all(seen)


def test_what_a_killed_writer_left_is_removed_and_a_living_ones_is_not(tmp_path: Path) -> None:
    import fcntl

    folder = tmp_path / "packed"
    folder.mkdir()
    dead, alive = folder / ".writing-dead", folder / ".writing-alive"
    dead.write_bytes(b"half")
    with alive.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        kept(PackCache(folder, 1 << 30), "k", matrix(1))
        assert sorted(p.name for p in folder.iterdir()) == [".writing-alive", "k.pack"]


def test_a_writer_that_must_stop_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object) -> object:
        while True:
            time.sleep(0.001)
            yield 0

    monkeypatch.setattr(pack_file, "write", slow)
    writing = PackCache(tmp_path / "packed", 1 << 30).keep("k", [matrix(1)])
    assert writing is not None
    writing.end(0.01)
    writing.end(0.01)
    assert packs_in(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "packed").write_bytes(b"a file in the way")
    cache = PackCache(tmp_path / "packed", 1 << 30)
    kept(cache, "k", matrix(1))
    assert cache.find("k", 1) is None


def test_the_name_tells_models_and_settings_apart() -> None:
    assert len({key_of(model, quantize) for model in ("a" * 64, "b" * 64) for quantize in ("none", "q8", "q4")}) == 6
