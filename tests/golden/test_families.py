"""Each family against transformers' own implementation, on tiny random models whose logits are stored (see make_models.py).

Tolerances are in units of a logit; the logits' standard deviation is about 1. Random weights are harder on 4 bits than trained ones are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import graph_numpy
from camshaft.config import EngineConfig
from camshaft.formats.model import ModelFile
from camshaft.models import build
from camshaft.runners.cpu import CpuRunner
from drive import run_alone
from golden_models import NAMES, as_gguf, golden_model, goldens
from model_weights import float_weights

FLOAT = 1e-4  # largest difference of any logit in float32
ROUNDED_KV = {"bf16": 0.03, "int8": 0.12}  # the same with K and V rounded
# Root mean square over all logits, of what packing the weights and int8 activations do together.
PACKED = {"q8": 0.05, "q4": 0.4}
EXACT = EngineConfig(compute="f32", kv_dtype="f32", block_size=16, kv_memory="4M", threads=1)


def differences(model: ModelFile, config: EngineConfig, name: str, chunk: int = 512) -> NDArray[np.float32]:
    """From transformers' logits, over all positions of all stored sequences."""
    runner = CpuRunner(model, config)
    found = [run_alone(runner, golden.ids, chunk) - golden.logits for golden in goldens(name)]
    runner.close()
    return np.concatenate(found)


def worst(model: ModelFile, config: EngineConfig, name: str, chunk: int = 512) -> float:
    return float(np.abs(differences(model, config, name, chunk)).max())


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


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kv_dtype", ROUNDED_KV)
def test_a_rounded_cache_costs_little(name: str, kv_dtype: str) -> None:
    assert worst(golden_model(name), replace(EXACT, kv_dtype=kv_dtype), name) < ROUNDED_KV[kv_dtype]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", PACKED)
def test_a_folder_packed_at_load_stays_within_the_stated_tolerance(name: str, form: str) -> None:
    config = replace(EXACT, compute="int8", kv_dtype="bf16", quantize=form)
    assert np.sqrt(np.mean(differences(golden_model(name), config, name) ** 2)) < PACKED[form]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("weights", ["Q8_0", "Q4_1"])
def test_float32_on_packed_weights_is_exact_for_what_the_file_says(name: str, weights: str, tmp_path: Path) -> None:
    """Against the oracle on the dequantised weights: what packing costs is the file's rounding and nothing of ours."""
    model = as_gguf(golden_model(name), tmp_path / "m.gguf", weights)
    runner = CpuRunner(model, EXACT)
    for golden in goldens(name):
        want = graph_numpy.logits(build(model.spec), float_weights(model), golden.ids)
        assert np.abs(run_alone(runner, golden.ids, 512) - want).max() < FLOAT
