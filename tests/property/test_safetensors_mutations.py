"""A damaged or hostile safetensors file gives a ModelError or loads, within a second and 200 MB, and never anything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from camshaft.formats import open_model
from gguf_writer import Tiny
from hf_writer import hf_tensors, safetensors_bytes, tiny_folder
from mutations import attack

SPEC = Tiny(n_layers=1, d_model=32, n_heads=2, n_kv_heads=1, d_ff=32)


def use_everything(file: Path) -> None:
    model = open_model(file.parent)
    for name in model.names():
        if len(model.info(name).shape) == 2:
            assert model.tensor(name).data.nbytes == model.info(name).n_bytes
        else:
            model.vector(name)


def test_a_mutated_file_is_refused_or_loads_quickly_and_small(tmp_path: Path) -> None:
    data = safetensors_bytes(hf_tensors(SPEC))
    head = 8 + int.from_bytes(data[:8], "little")
    n_loaded = attack(data, tiny_folder(tmp_path, SPEC) / "model.safetensors", use_everything, n=300, head=head, seed=1)
    assert n_loaded < 150


def test_a_mutated_config_is_refused_or_loads_quickly_and_small(tmp_path: Path) -> None:
    config = tiny_folder(tmp_path, SPEC) / "config.json"
    data = config.read_bytes()
    assert attack(data, config, use_everything, n=300, head=len(data), seed=2) < 250


@pytest.mark.slow
def test_five_thousand_mutated_files(tmp_path: Path) -> None:
    data = safetensors_bytes(hf_tensors(SPEC))
    attack(data, tiny_folder(tmp_path, SPEC) / "model.safetensors", use_everything, n=5000, head=2000, seed=3)
