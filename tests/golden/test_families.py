"""Each family against transformers' own implementation, on tiny random models whose logits are stored (see make_models.py).

Tolerances are absolute, on logits with a standard deviation of about 1.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graph_numpy
from camshaft.config import EngineConfig
from camshaft.formats.model import ModelFile
from camshaft.models import build
from camshaft.runners.cpu import CpuRunner
from drive import run_alone
from golden_models import NAMES, as_gguf, golden_model, goldens
from model_weights import float_weights

FLOAT = 1e-4
EXACT = EngineConfig(compute="f32", kv_dtype="f32", block_size=16, kv_memory="4M", threads=1)


def worst(model: ModelFile, config: EngineConfig, name: str, chunk: int = 512) -> float:
    """Largest difference from transformers over all positions of all stored sequences."""
    runner = CpuRunner(model, config)
    try:
        return max(float(np.abs(run_alone(runner, g.ids, chunk) - g.logits).max()) for g in goldens(name))
    finally:
        runner.close()


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_says_the_network_that_transformers_computes(name: str) -> None:
    model = golden_model(name)
    for golden in goldens(name):
        got = graph_numpy.logits(build(model.spec), float_weights(model), golden.ids)
        assert np.abs(got - golden.logits).max() < 2e-5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk", [512, 7, 1], ids=["whole", "chunks", "decode"])
def test_float32_gives_transformers_logits(name: str, chunk: int) -> None:
    assert worst(golden_model(name), EXACT, name, chunk) < FLOAT


@pytest.mark.parametrize("name", NAMES)
def test_the_same_model_as_gguf_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    assert worst(as_gguf(golden_model(name), tmp_path / "m.gguf"), EXACT, name) < FLOAT
