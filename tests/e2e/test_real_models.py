"""Real models, pulled on first use: perplexity against transformers' figures, and the same bits on every instruction set and schedule.

Reference figures: transformers in float32 on the dequantised weights, first 16,384 tokens of WikiText-2's tokenised validation text in
windows of 512, each on its own: SmolLM2-135M-Instruct Q4_1 without BOS 18.72, Gemma 3 270M Q4_K_M with BOS before each window 33.28.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from camshaft import _native
from camshaft.bench.perplexity import perplexity
from camshaft.config import EngineConfig
from camshaft.formats.model import ModelFile
from camshaft.formats.open import open_model
from camshaft.formats.source import resolve
from camshaft.runners.cpu import CpuRunner
from camshaft.tokenizer.tokenizer import Tokenizer
from drive import run_alone
from shared_data import shared_data_or_skip

pytestmark = pytest.mark.slow

N_TOKENS = 16_384
FLOAT32 = EngineConfig(compute="f32", kv_dtype="f32", kv_memory="256M")
DEFAULT = EngineConfig(kv_memory="256M")


@cache
def real(name: str) -> tuple[ModelFile, Tokenizer]:
    path = resolve(name)
    return open_model(path), Tokenizer.from_file(path)


def wikitext(tokenizer: Tokenizer, n: int) -> list[int]:
    """The corpus writes <unk> for rare words, which transformers reads as the special token where a vocabulary has one.

    The reference figures were made so; our own encode would take the spelling for text, which is easier to predict (Gemma: 14.4).
    """
    text = (shared_data_or_skip() / "text" / "wikitext2_valid.txt").read_text(encoding="utf-8")
    known = tokenizer.special_id("<unk>") is not None
    pieces = re.split("(<unk>)", text[: 20 * n])
    return tokenizer.encode_parts((piece, known and piece == "<unk>") for piece in pieces)[:n]


@pytest.mark.parametrize(
    ("name", "with_bos", "config", "reference", "tolerance"),
    [
        ("smollm2-135m", False, DEFAULT, 18.72, 0.01),
        ("smollm2-135m", False, FLOAT32, 18.72, 0.001),
        ("gemma3-270m", True, DEFAULT, 33.28, 0.01),
    ],
    ids=["smollm2", "smollm2-float32", "gemma3"],
)
def test_perplexity_is_that_of_transformers(name: str, with_bos: bool, config: EngineConfig, reference: float, tolerance: float) -> None:
    model, tokenizer = real(name)
    ids = wikitext(tokenizer, N_TOKENS)
    assert len(ids) == N_TOKENS
    runner = CpuRunner(model, config)
    value = perplexity(runner, ids, bos_id=tokenizer.bos_id if with_bos else None).value
    runner.close()
    assert value == pytest.approx(reference, rel=tolerance)


@pytest.mark.parametrize("name", ["smollm2-135m", "gemma3-270m"])
def test_instruction_sets_and_chunks_give_the_same_bits(name: str) -> None:
    model, tokenizer = real(name)
    ids = wikitext(tokenizer, 48)
    logits: list[np.ndarray] = []
    for isa in _native.available_isas():
        runner = CpuRunner(model, DEFAULT, isa=isa)
        logits += [run_alone(runner, ids, chunk) for chunk in (48, 7)]
        runner.close()
    for a, b in pairwise(logits):
        np.testing.assert_array_equal(a.view(np.uint32), b.view(np.uint32))
