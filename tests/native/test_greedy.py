"""A row that wants its likeliest token alone never has its logits written out: the ids must be those of the whole row."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from camshaft._native import Program
from camshaft.types import SamplingParams
from native_tiny import GREEDY, RowIn, Setup, Shape, TinyLlama, open_slot, run, table_patch

VOCAB = 40_001  # more than a worker takes at once, with a tail
SHAPE = Shape(vocab=VOCAB, d=32, d_ff=32)
DRAWN = SamplingParams(temperature=0.9, seed=3)
N_SLOTS = 40


def build(threads: int, compute: str, model: TinyLlama | None = None) -> Program:
    quantise = "q8" if compute == "int8" else ""
    setup = Setup(threads=threads, compute=compute, quantise=quantise, max_slots=N_SLOTS, n_blocks=2 * N_SLOTS + 8)
    return (model or TinyLlama(SHAPE, seed=6)).build(setup)


def sampled(program: Program, n: int, *, drawn_every: int = 0) -> list[int]:
    """The ids of one step that samples at the end of n different prompts; every so many is drawn, not greedy."""
    rows, patches = [], []
    for slot in range(n):
        prompt = [(slot * 977 + i * 31) % VOCAB for i in range(3)]
        open_slot(program, slot, prompt, DRAWN if drawn_every and slot % drawn_every == 0 else GREEDY)
        rows.append(RowIn(slot, 0, prompt, n_sample=1))
        patches += table_patch(slot, [[2 * slot + 1], [2 * slot + 2]])
    return [ids[0] for ids, _, _ in run(program, rows, patches=patches)]


@pytest.mark.parametrize("compute", ["f32", "int8"])
@pytest.mark.parametrize("n", [1, 2, 5, 17, 40])
def test_ids_are_those_of_whole_rows_for_any_number_of_rows_and_threads(compute: str, n: int) -> None:
    whole = build(1, compute)
    whole.keep_logits(True)
    ids = sampled(whole, n)
    assert ids == [int(row.argmax()) for row in whole.last_logits()]
    for threads in (1, 3):
        program = build(threads, compute)
        assert sampled(program, n) == ids
        mixed = sampled(program, n, drawn_every=3)
        assert [i for slot, i in enumerate(mixed) if slot % 3] == [i for slot, i in enumerate(ids) if slot % 3]


@dataclass(frozen=True)
class Spoilt(TinyLlama):
    """The same network with some rows of the embedding, and so of the head, replaced: by a number, or by another row."""

    rows: dict[int, float | int] = field(default_factory=dict)

    @property
    def embedding(self) -> NDArray[np.float32]:
        table = super().embedding.copy()
        for row, what in self.rows.items():
            table[row] = table[what] if isinstance(what, int) else np.float32(what)
        return table


def test_a_tie_between_pieces_goes_to_the_lowest_id() -> None:
    best = sampled(build(1, "f32"), 1)[0]
    twin, lower = (best + 20_000) % VOCAB, (best + 10_000) % VOCAB
    for threads in (1, 2):
        assert sampled(build(threads, "f32", Spoilt(SHAPE, 6, {twin: best, lower: best})), 1) == [min(best, twin, lower)]


def test_a_logit_that_is_not_finite_gives_no_token() -> None:
    for where in (7_000, 39_999, VOCAB - 1):
        for threads in (1, 2):
            assert sampled(build(threads, "f32", Spoilt(SHAPE, 6, {where: float("nan")})), 3) == [-1, -1, -1]
