"""Scheduling never changes output: float32 logits of every position, bit for bit, over made-up schedules on tiny random models.

Each example runs three sequences with common prefixes through one runner, in random chunks and company, out of random blocks, with prefix
hits, windows that give blocks back, and preemptions into other slots. Every logit must be the one that the sequence has when it is computed
alone, in one piece, by one thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.formats.open import open_model
from camshaft.runners.cpu import CpuRunner
from drive import Blocks, Driven, run_alone, step
from gguf_writer import VOCAB_SIZE, Tiny, tiny_model

ALL_ISAS = ("ref", "avx2", "avx512")
MODELS = {
    "llama-q4": (Tiny(weights="Q4_1", tied=False), "int8", "bf16"),
    "llama-f32": (Tiny(weights="F32"), "f32", "f32"),
    "gemma-q8": (Tiny(family="gemma3", n_layers=6, weights="Q8_0", window=24), "int8", "bf16"),
    "gemma-int8-cache": (Tiny(family="gemma3", n_layers=6, weights="Q4_1", window=24), "int8", "int8"),
    "qwen-bf16": (Tiny(family="qwen2", weights="BF16", head_dim=24, n_heads=6), "int8", "bf16"),
}
BLOCK = 16
N_SLOTS = 4
CHUNKS = (100, 0, 1, 1, 2, 7, 16, 31)  # the largest first: hypothesis shrinks towards it, and so towards schedules that end


def _sequences() -> list[list[int]]:
    rng = random.Random(5)
    a = [rng.randrange(VOCAB_SIZE) for _ in range(100)]
    return [a, a[:70] + [rng.randrange(VOCAB_SIZE) for _ in range(25)], [rng.randrange(VOCAB_SIZE) for _ in range(33)]]


SEQUENCES = _sequences()
PREFIX_BLOCKS = 70 // BLOCK  # whole blocks that the first two have in common


class Setting:
    """One model on one instruction set: runners of one and two threads, and what each sequence's logits must be."""

    def __init__(self, folder: Path, model: str, isa: str) -> None:
        tiny, compute, kv_dtype = MODELS[model]
        file = open_model(tiny_model(folder / f"{model}.gguf", tiny))
        one = EngineConfig(
            compute=compute,
            kv_dtype=kv_dtype,
            block_size=BLOCK,
            kv_memory="2M",
            threads=1,
            max_num_seqs=N_SLOTS,
            max_num_batched_tokens=128,
        )
        self.runners = [CpuRunner(file, replace(one, threads=n), isa=isa) for n in (1, 2)]
        self.want = [run_alone(self.runners[0], ids, len(ids)) for ids in SEQUENCES]


Settings = Callable[[str, str], Setting]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    made = lru_cache(lambda model, isa: Setting(tmp_path_factory.mktemp("models"), model, isa))
    yield made
    made.cache_clear()


@pytest.mark.parametrize("isa", ALL_ISAS)
@pytest.mark.parametrize("model", MODELS)
def test_logits_are_the_same_bits_whatever_the_schedule(setting: Settings, model: str, isa: str) -> None:
    if isa not in _native.available_isas():
        pytest.skip(f"instruction set {isa} is not on this machine")
    at = setting(model, isa)

    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.data())
    def check(data: st.DataObject) -> None:
        runner = data.draw(st.sampled_from(at.runners), "runner")
        for got, want in zip(run_schedule(runner, data), at.want, strict=True):
            assert_same_bits(got, want)

    check()


@pytest.mark.parametrize("model", MODELS)
def test_every_instruction_set_gives_the_same_bits(setting: Settings, model: str) -> None:
    isas = [isa for isa in ALL_ISAS if isa in _native.available_isas()]
    for isa in isas:
        for got, want in zip(setting(model, isa).want, setting(model, "ref").want, strict=True):
            assert_same_bits(got, want)


def test_different_tokens_give_different_bits(setting: Settings) -> None:
    """The comparison can fail: one token of the prompt changed, and every later position's logits differ."""
    at = setting("llama-q4", "ref")
    changed = [SEQUENCES[2][0] ^ 1, *SEQUENCES[2][1:]]
    got = run_alone(at.runners[0], changed, len(changed))
    assert (got != at.want[2]).any(axis=1).all()


def run_schedule(runner: CpuRunner, data: st.DataObject) -> list[NDArray[np.float32]]:
    """Runs all sequences to their end under a schedule drawn from `data`, and returns their logits."""
    blocks = Blocks(runner.capacity(), data.draw(st.integers(0, 1000), "order of blocks"))
    slots = list(data.draw(st.permutations(range(N_SLOTS)), "slots"))
    all_driven = [Driven(runner, slots.pop(), ids, blocks) for ids in SEQUENCES]
    first, second = all_driven[:2]
    while any(d.n_left for d in all_driven):
        work = []
        budget = runner.capacity().max_tokens
        for driven in data.draw(st.permutations(all_driven), "order of rows"):
            n = min(data.draw(st.sampled_from(CHUNKS), "chunk"), driven.n_left, budget)
            if n:
                work.append((driven, n))
                budget -= n
        if work:
            step(runner, work)
        hit = min(PREFIX_BLOCKS, first.n_done // BLOCK)
        if second.n_done == 0 and hit and whole(first, hit) and data.draw(st.booleans(), "prefix hit"):
            second.share(first, hit)
        if data.draw(st.integers(0, 4), "preempt") == 0:
            victim = data.draw(st.sampled_from(all_driven), "victim")
            runner.release(victim.slot)
            slots.insert(0, victim.slot)
            victim.open(slots.pop())
    for driven in all_driven:
        runner.release(driven.slot)
    return [driven.logits for driven in all_driven]


def whole(driven: Driven, n_blocks: int) -> bool:
    """Whether no group has given back any of the first blocks."""
    return all(all(table[:n_blocks]) for table in driven.tables)


def assert_same_bits(got: NDArray[np.float32], want: NDArray[np.float32]) -> None:
    differ = np.argwhere(got.view(np.uint32) != want.view(np.uint32))
    assert len(differ) == 0, f"{len(differ)} of {got.size} logits differ, first at position {differ[0][0]}, token {differ[0][1]}"
