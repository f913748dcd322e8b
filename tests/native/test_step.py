"""Plans go to the native program, and its answers come back, as the types that Python has for them."""

from __future__ import annotations

import numpy as np
import pytest

from camshaft.types import BlockCopy, RawLogprob, Row, RowResult, SamplingParams, StepPlan, StepResult, TablePatch
from native_tiny import GREEDY, NO_IDS, Setup, TinyLlama


def patches(*blocks: int) -> tuple[TablePatch, ...]:
    """The same for both groups of the tiny model, in blocks of their own."""
    return (TablePatch(0, 0, blocks), TablePatch(1, 0, tuple(b + 20 for b in blocks)))


def int32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def program_with(params: SamplingParams = GREEDY, prompt: tuple[int, ...] = (5, 6, 7)):  # type: ignore[no-untyped-def]
    program = TinyLlama().build(Setup())
    program.open(0, params, 0, int32(*prompt), NO_IDS)
    return program


def test_a_plan_gives_what_the_same_arrays_give() -> None:
    plan = StepPlan((Row(0, 0, (5, 6, 7), 1, patches(1, 2)),))
    result = program_with().step(plan, {})
    rows, copies = int32(0, 0, 3, 1, 0).reshape(1, 5), int32().reshape(0, 2)
    same = program_with().run(int32(5, 6, 7), rows, int32(0, 0, 0, 2, 1, 2, 0, 1, 0, 2, 21, 22), copies, {})
    assert isinstance(result, StepResult)
    assert result.rows == (RowResult(tuple(same[0][0])),)
    assert result.step_s > 0


def test_a_chunk_that_is_not_sampled_and_a_copy_leave_no_ids() -> None:
    program = program_with()
    result = program.step(StepPlan((Row(0, 0, (5, 6), 0, patches(1, 2)),), (BlockCopy(1, 3),)), {})
    assert result.rows == (RowResult(()),)
    assert len(program.step(StepPlan((Row(0, 2, (7,), 1),)), {}).rows[0].ids) == 1


def test_logprobs_and_scores_come_as_their_types() -> None:
    program = program_with(SamplingParams(temperature=0, seed=0, logprobs=2, prompt_logprobs=1))
    (row,) = program.step(StepPlan((Row(0, 0, (5, 6, 7), 1, patches(1, 2), True),)), {}).rows
    (sampled,) = row.logprobs
    assert isinstance(sampled, RawLogprob)
    assert (sampled.id, len(sampled.top), sampled.top[0]) == (row.ids[0], 2, (sampled.id, sampled.logprob))
    assert [score.id for score in row.scores] == [6, 7]
    assert all(len(score.top) == 1 for score in row.scores)


def test_a_mask_decides() -> None:
    only_11 = (1 << 11).to_bytes(16, "little")
    result = program_with().step(StepPlan((Row(0, 0, (5, 6, 7), 1, patches(1, 2)),)), {0: only_11})
    assert result.rows[0].ids == (11,)


@pytest.mark.parametrize(
    ("plan", "error"),
    [
        (StepPlan((Row(1, 0, (5,), 1),)), ValueError),  # a slot that is not open
        (StepPlan((Row(0, 0, (1 << 40,), 1, patches(1)),)), ValueError),
        (StepPlan([Row(0, 0, (5,), 1, patches(1))]), TypeError),  # type: ignore[arg-type]
        (StepPlan((Row(0, 0, ("a",), 1, patches(1)),)), TypeError),  # type: ignore[arg-type]
        ("no plan", AttributeError),
    ],
)
def test_a_plan_that_lies_is_refused_and_changes_nothing(plan: StepPlan, error: type[Exception]) -> None:
    program = program_with()
    with pytest.raises(error):
        program.step(plan, {})
    assert program.step(StepPlan((Row(0, 0, (5, 6, 7), 1, patches(1, 2)),)), {}).rows[0].ids
