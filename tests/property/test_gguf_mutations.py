"""A damaged or hostile GGUF file gives a ModelError or loads, within a second and 200 MB, and never anything else."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from camshaft.errors import ModelError
from camshaft.formats import open_model, open_vocab
from gguf_writer import Tiny, gguf_bytes, tiny_metadata, tiny_tensors
from shared_data import shared_data_or_skip

MOST_SECONDS = 1.0
MOST_BYTES = 200_000_000
LENGTHS = (0, 1, 2, 31, 255, 65_535, 65_537, 1 << 20, 1 << 24, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)


def mutate(data: bytes, rng: random.Random, head: int) -> bytes:
    """One to four injuries, most of them to the first `head` bytes, which say what the rest means."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(min(head if rng.random() < 0.95 else len(out), len(out)) or 1)
        kind = rng.randrange(7)
        if kind == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at : at + 8] = rng.choice(LENGTHS).to_bytes(8, "little")
        elif kind == 3:
            out[at : at + 4] = (rng.choice(LENGTHS) & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind == 4:
            del out[rng.randrange(len(out) + 1) :]
        elif kind == 5:
            del out[at : at + rng.randrange(1, 64)]
        else:
            out[at:at] = out[at : at + rng.randrange(1, 64)]
    return bytes(out)


def use_everything(path: Path) -> None:
    """All that a load touches."""
    model = open_model(path)
    assert model.vocab is None or model.vocab.tokens
    assert all(0 <= i for i in model.generation.eos_ids)
    for name in model.names():
        if len(model.info(name).shape) == 2:
            tensor = model.tensor(name)
            assert tensor.data.nbytes == model.info(name).n_bytes
            assert tensor.row_order is None or sorted(tensor.row_order) == list(range(tensor.rows))
            int(tensor.data[0]) + int(tensor.data[-1])
        else:
            model.vector(name)


def attack(data: bytes, path: Path, use: Callable[[Path], object], *, n: int, head: int, seed: int) -> int:
    """Opens n mutations, with their cost bounded one by one. Returns how many loaded in spite of it."""
    rng = random.Random(seed)
    n_loaded = 0
    tracemalloc.start()
    try:
        for index in range(n):
            path.write_bytes(mutate(data, rng, head))
            tracemalloc.reset_peak()
            before, started = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                use(path)
                n_loaded += 1
            except ModelError as error:
                assert "\n" not in error.message, (index, error.message)
            seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1] - before
            assert seconds < MOST_SECONDS, f"mutation {index} of seed {seed} took {seconds:.2f} s"
            assert peak < MOST_BYTES, f"mutation {index} of seed {seed} took {peak:,} bytes"
    finally:
        tracemalloc.stop()
    return n_loaded


def tiny(family: str) -> tuple[bytes, int]:
    """A small whole file, and where its tensors' bytes begin."""
    spec = Tiny(family, n_layers=1, d_model=32, n_heads=2, n_kv_heads=1, d_ff=32)
    tensors = tiny_tensors(spec)
    data = gguf_bytes(tiny_metadata(spec), tensors)
    return data, len(data) - sum((t.nbytes + 31) // 32 * 32 for t in tensors.values())


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_mutated_file_is_refused_or_loads_quickly_and_small(family: str, tmp_path: Path) -> None:
    data, head = tiny(family)
    n_loaded = attack(data, tmp_path / "m.gguf", use_everything, n=300, head=head, seed=1)
    assert 0 < n_loaded < 250, "the mutations should damage most files, not all"


def test_a_file_cut_anywhere_in_its_header_is_refused(tmp_path: Path) -> None:
    data, head = tiny("llama")
    path = tmp_path / "cut.gguf"
    for n in [*range(0, 200), *range(200, head, 37), head, len(data) - 4]:
        path.write_bytes(data[:n])
        with pytest.raises(ModelError):
            open_model(path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 14))
def test_five_thousand_mutated_files_a_seed(seed: int, tmp_path: Path) -> None:
    data, head = tiny(("llama", "qwen2", "qwen3", "gemma3")[seed % 4])
    attack(data, tmp_path / "m.gguf", use_everything, n=5000, head=head, seed=seed)


@pytest.mark.slow
def test_a_mutated_real_vocabulary_is_refused_or_loads_quickly_and_small(tmp_path: Path) -> None:
    data = (shared_data_or_skip() / "tokenizers" / "ggml-vocab-llama-spm.gguf").read_bytes()
    attack(data, tmp_path / "v.gguf", open_vocab, n=300, head=len(data), seed=2)
