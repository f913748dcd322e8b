"""Scheduling never changes output: the logits of every row are the same bits whatever the batch, chunks, threads and block tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from camshaft._native import Program, available_isas
from camshaft.types import SamplingParams
from native_tiny import RowIn, Setup, Shape, TinyLlama, open_slot, run, table_patch

N = 80
SETUPS = {
    "packed": Setup(compute="int8", kv_dtype="bf16", quantise="q4", max_tokens=128, max_slots=16, n_blocks=200),
    "int8 cache": Setup(compute="int8", kv_dtype="int8", quantise="q4", max_tokens=128, max_slots=16, n_blocks=200),
    "float32": Setup(max_tokens=128, max_slots=16, n_blocks=200),
}
MODEL = TinyLlama()
PROMPT = [int(i) for i in np.random.default_rng(7).integers(0, Shape().vocab, N)]


@dataclass(frozen=True)
class Schedule:
    chunks: Sequence[int]  # how PROMPT is cut
    mates: int = 0  # other sequences in each step, of other lengths, in front and behind
    block_seed: int = 0


def blocks_of(schedule: Schedule, setup: Setup, slot: int) -> list[list[int]]:
    """Distinct blocks in an order of their own for each slot and group."""
    per_table = -(-N // setup.block_size)
    rng = np.random.default_rng(schedule.block_seed)
    ids = 1 + rng.permutation(setup.n_blocks - 1)
    start = slot * 2 * per_table
    return [[int(b) for b in ids[start + g * per_table : start + (g + 1) * per_table]] for g in range(2)]


def logits_of(program: Program, schedule: Schedule, setup: Setup) -> bytes:
    """Logits of every position of PROMPT in slot 0, as bytes."""
    mates = range(1, schedule.mates + 1)
    for slot in (0, *mates):
        open_slot(program, slot, PROMPT if slot == 0 else PROMPT[slot:])
    collected, done, mates_done = [], 0, dict.fromkeys(mates, 0)
    patched: set[int] = set()
    for chunk in schedule.chunks:
        rows = [RowIn(0, done, PROMPT[done : done + chunk], n_sample=chunk)]
        for slot in mates:
            ids = PROMPT[slot:][mates_done[slot] :][: 1 + slot % 3]
            if ids:
                mate = RowIn(slot, mates_done[slot], ids, n_sample=slot % 2)
                rows = [mate, *rows] if slot % 2 else [*rows, mate]
                mates_done[slot] += len(ids)
        new = {r.slot for r in rows} - patched
        patched |= new
        patches = [w for slot in new for w in table_patch(slot, blocks_of(schedule, setup, slot))]
        run(program, rows, patches=patches)
        before = sum(r.n_sample for r in rows[: [r.slot for r in rows].index(0)])
        collected.append(program.last_logits()[before : before + chunk].tobytes())
        done += chunk
    for slot in (0, *mates):
        program.release(slot)
    return b"".join(collected)


@pytest.fixture(scope="module", params=[(isa, name) for isa in available_isas() for name in SETUPS], ids=str)
def case(request: pytest.FixtureRequest) -> tuple[Setup, dict[int, Program], bytes]:
    isa, name = request.param
    setup = replace(SETUPS[name], isa=isa)
    programs = {threads: MODEL.build(replace(setup, threads=threads)) for threads in (1, 2, 3)}
    for program in programs.values():
        program.keep_logits(True)
    return setup, programs, logits_of(programs[1], Schedule([N]), setup)


schedules = st.builds(
    Schedule,
    chunks=st.lists(st.integers(1, 40), min_size=1, max_size=30).map(lambda cuts: _fit(cuts, N)),
    mates=st.integers(0, 12),
    block_seed=st.integers(0, 5),
)


def _fit(cuts: list[int], total: int) -> list[int]:
    """Cuts repeated and trimmed to sum to `total`."""
    out: list[int] = []
    while sum(out) < total:
        out.append(min(cuts[len(out) % len(cuts)], total - sum(out)))
    return out


@settings(max_examples=15, deadline=None)
@given(schedule=schedules, threads=st.sampled_from([1, 2, 3]))
def test_logits_do_not_depend_on_batch_chunks_threads_or_tables(
    case: tuple[Setup, dict[int, Program], bytes], schedule: Schedule, threads: int
) -> None:
    setup, programs, expected = case
    assert logits_of(programs[threads], schedule, setup) == expected


def test_block_size_does_not_matter(case: tuple[Setup, dict[int, Program], bytes]) -> None:
    setup, _, expected = case
    for size in (32, 64, 128):
        other = replace(setup, block_size=size, n_blocks=20, threads=2)
        program = MODEL.build(other)
        program.keep_logits(True)
        assert logits_of(program, Schedule([50, 30]), other) == expected


def test_a_prefix_computed_by_another_slot_gives_the_same_logits(case: tuple[Setup, dict[int, Program], bytes]) -> None:
    setup, programs, expected = case
    program, shared = programs[2], 48  # whole blocks
    blocks = blocks_of(Schedule([]), setup, 0)
    open_slot(program, 0, PROMPT)
    run(program, [RowIn(0, 0, PROMPT[:shared])], patches=table_patch(0, blocks))
    program.release(0)
    own = blocks_of(Schedule([]), setup, 1)
    tail = [group[: shared // setup.block_size] + mine[shared // setup.block_size :] for group, mine in zip(blocks, own, strict=True)]
    open_slot(program, 1, PROMPT)
    run(program, [RowIn(1, shared, PROMPT[shared:], n_sample=N - shared)], patches=table_patch(1, tail))
    program.release(1)
    size = len(expected) // N
    assert program.last_logits().tobytes() == expected[shared * size :]


def test_a_copied_block_serves_like_the_one_it_came_from(case: tuple[Setup, dict[int, Program], bytes]) -> None:
    setup, programs, expected = case
    program, known = programs[2], 40  # the third block is half full: copy on write
    blocks = blocks_of(Schedule([]), setup, 0)
    open_slot(program, 0, PROMPT)
    run(program, [RowIn(0, 0, PROMPT[:known])], patches=table_patch(0, blocks))
    fresh = blocks_of(Schedule([]), setup, 1)
    at = known // setup.block_size
    mine = [old[:at] + new[at:] for old, new in zip(blocks, fresh, strict=True)]
    open_slot(program, 1, PROMPT)
    copies = [(old[at], new[at]) for old, new in zip(blocks, fresh, strict=True)]
    run(program, [RowIn(1, known, PROMPT[known:], n_sample=N - known)], patches=table_patch(1, mine), copies=copies)
    for slot in (0, 1):
        program.release(slot)
    assert program.last_logits().tobytes() == expected[known * (len(expected) // N) :]


def test_blocks_behind_the_window_may_be_gone(case: tuple[Setup, dict[int, Program], bytes]) -> None:
    setup, programs, expected = case
    program = programs[2]
    blocks = blocks_of(Schedule([]), setup, 0)
    open_slot(program, 0, PROMPT)
    run(program, [RowIn(0, 0, PROMPT[:64])], patches=table_patch(0, blocks))
    gone = (64 - Shape().windows[1] + 1) // setup.block_size
    run(program, [RowIn(0, 64, PROMPT[64:], n_sample=N - 64)], patches=[0, 1, 0, gone, *([0] * gone)])
    program.release(0)
    assert program.last_logits().tobytes() == expected[64 * (len(expected) // N) :]


class NanLlama(TinyLlama):
    """MODEL, but for one token whose embedding (and so its row of the tied head) is not a number."""

    POISON = next(i for i in range(Shape().vocab) if i not in PROMPT)

    @property
    def embedding(self) -> NDArray[np.float32]:
        table = super().embedding
        table[self.POISON] = np.nan
        return table


@pytest.mark.parametrize("kv_dtype", ["f32", "int8"])
@pytest.mark.parametrize("isa", available_isas())
def test_values_that_are_not_numbers_do_not_outlive_their_request_in_its_blocks(isa: str, kv_dtype: str) -> None:
    setup = replace(SETUPS["float32"], isa=isa, kv_dtype=kv_dtype)
    logits = []
    for poisoned in (False, True):
        program = NanLlama().build(setup)
        program.keep_logits(True)
        if poisoned:
            open_slot(program, 0, [NanLlama.POISON] * N)
            ((ids, _, _),) = run(
                program, [RowIn(0, 0, [NanLlama.POISON] * N, n_sample=1)], patches=table_patch(0, blocks_of(Schedule([]), setup, 0))
            )
            assert ids == [-1]
            assert np.isnan(program.last_logits()).all()
            program.release(0)
        table = np.frombuffer(logits_of(program, Schedule([7, 40, 33]), setup), np.float32).reshape(N, -1)
        logits.append(np.delete(table, NanLlama.POISON, axis=1))
    assert np.isfinite(logits[0]).all()
    assert logits[0].tobytes() == logits[1].tobytes()


def test_a_row_that_is_not_finite_fails_alone() -> None:
    program = NanLlama().build(replace(SETUPS["float32"], threads=2))
    program.keep_logits(True)
    for slot in (0, 1, 2):
        open_slot(program, slot, PROMPT[:20])
    patches = [w for slot in (0, 1, 2) for w in table_patch(slot, blocks_of(Schedule([]), SETUPS["float32"], slot))]
    run(
        program,
        [RowIn(0, 0, PROMPT[:20], 1), RowIn(1, 0, [NanLlama.POISON, *PROMPT[:19]], 1), RowIn(2, 0, PROMPT[:20], 1)],
        patches=patches,
    )
    logits = np.delete(program.last_logits(), NanLlama.POISON, axis=1)
    assert np.isnan(logits[1]).all()
    assert np.isfinite(logits[[0, 2]]).all()
    assert logits[0].tobytes() == logits[2].tobytes()


def test_logprobs_and_batch_mates_do_not_change_a_seeded_draw() -> None:
    setup = replace(SETUPS["packed"], threads=2)
    program = MODEL.build(setup)
    drawn = []
    for logprobs, mates in ((None, 0), (5, 0), (None, 5), (0, 3)):
        for slot in range(mates + 1):
            mine = SamplingParams(temperature=1.3, top_p=0.95, seed=11, logprobs=logprobs)
            open_slot(program, slot, PROMPT[:20], mine if slot == mates else SamplingParams(seed=slot))
        patches = [w for slot in range(mates + 1) for w in table_patch(slot, blocks_of(Schedule([]), setup, slot))]
        results = run(program, [RowIn(slot, 0, PROMPT[:20], n_sample=20) for slot in range(mates + 1)], patches=patches)
        drawn.append(results[-1][0])
    assert all(d == drawn[0] for d in drawn)
    assert len(set(drawn[0])) > 3


@pytest.mark.parametrize("kv_dtype", ["bf16", "int8"])
@pytest.mark.parametrize("isa", available_isas())
def test_a_long_row_that_threads_share_gives_the_same_bits(isa: str, kv_dtype: str) -> None:
    """800 positions are 13 spans: enough to share out a decode row, and one of four tokens."""
    setup = Setup(isa=isa, kv_dtype=kv_dtype, max_tokens=800, n_blocks=110)
    ids = [int(i) for i in np.random.default_rng(9).integers(0, Shape().vocab, 800)]
    blocks = [list(range(1, 51)), list(range(51, 101))]
    found = []
    for threads in (1, 2, 3):
        program = TinyLlama(Shape(max_positions=1024)).build(replace(setup, threads=threads))
        program.keep_logits(True)
        open_slot(program, 0, ids)
        run(program, [RowIn(0, 0, ids[:790])], patches=table_patch(0, blocks))
        logits = b""
        for start, n in ((790, 1), (791, 4), (795, 1), (796, 4)):
            run(program, [RowIn(0, start, ids[start : start + n], n_sample=n)])
            logits += program.last_logits().tobytes()
        found.append(logits)
    assert found[0] == found[1] == found[2]
