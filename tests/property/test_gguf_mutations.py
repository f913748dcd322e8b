"""A damaged or hostile GGUF file gives a ModelError or loads, within a second and 200 MB, and never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from camshaft.errors import ModelError
from camshaft.formats import open_model, open_vocab
from gguf_writer import Tiny, gguf_bytes, tiny_metadata, tiny_tensors
from mutations import attack
from shared_data import shared_data_or_skip


def use_everything(path: Path) -> None:
    """All that a load touches."""
    model = open_model(path)
    assert model.vocab is None or model.vocab.tokens
    assert all(i >= 0 for i in model.generation.eos_ids)
    for name in model.names():
        if len(model.info(name).shape) == 2:
            tensor = model.tensor(name)
            assert tensor.data.nbytes == model.info(name).n_bytes
            assert tensor.row_order is None or sorted(tensor.row_order) == list(range(tensor.rows))
            int(tensor.data[0]) + int(tensor.data[-1])
        else:
            model.vector(name)


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
    for n in [*range(200), *range(200, head, 37), head, len(data) - 4]:
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
    attack(data, tmp_path / "v.gguf", open_vocab, n=100, head=len(data), seed=2)
