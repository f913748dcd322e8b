"""A hand-built tiny llama gives what numpy gives, on every instruction set of this machine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from camshaft._native import available_isas
from native_tiny import RowIn, Setup, Shape, TinyLlama, open_slot, run, table_patch

ISAS = available_isas()
IDS = [int(i) for i in np.random.default_rng(1).integers(0, Shape().vocab, 90)]
BLOCKS = [[5, 3, 9, 1, 22, 40], [2, 4, 6, 8, 10, 12]]


def all_logits(model: TinyLlama, setup: Setup) -> np.ndarray:
    program = model.build(setup)
    program.keep_logits(True)
    open_slot(program, 0, IDS)
    run(program, [RowIn(0, 0, IDS, n_sample=len(IDS))], patches=table_patch(0, BLOCKS))
    return program.last_logits()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("softcap", [0.0, 5.0])
def test_float32_logits_equal_numpy(isa: str, softcap: float) -> None:
    model = TinyLlama(Shape(softcap=softcap))
    logits = all_logits(model, Setup(isa=isa))
    assert logits.shape == (len(IDS), model.shape.vocab)
    np.testing.assert_allclose(logits, model.logits(IDS), atol=2e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("compute", "kv_dtype", "quantise", "bound"),
    [("f32", "bf16", "", 0.02), ("f32", "int8", "", 0.02), ("int8", "f32", "q8", 0.04), ("int8", "bf16", "q4", 0.4)],
)
def test_packed_logits_are_near_numpy(isa: str, compute: str, kv_dtype: str, quantise: str, bound: float) -> None:
    model = TinyLlama()
    logits = all_logits(model, Setup(isa=isa, compute=compute, kv_dtype=kv_dtype, quantise=quantise))
    expected = model.logits(IDS)
    error = np.sqrt(np.mean((logits - expected) ** 2)) / expected.std()
    assert error < bound


@pytest.mark.parametrize(
    "setup", [Setup(), Setup(compute="int8", kv_dtype="bf16", quantise="q4"), Setup(kv_dtype="int8")], ids=["f32", "packed", "int8-kv"]
)
def test_every_instruction_set_gives_the_same_bits(setup: Setup) -> None:
    first, *others = (all_logits(TinyLlama(), replace(setup, isa=isa)) for isa in ISAS)
    for other in others:
        assert first.tobytes() == other.tobytes()


def test_softcap_bounds_the_logits() -> None:
    assert np.abs(all_logits(TinyLlama(Shape(softcap=0.5)), Setup())).max() <= 0.5
