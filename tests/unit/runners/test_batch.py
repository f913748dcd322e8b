"""Plans become flat arrays and answers become types."""

from __future__ import annotations

import numpy as np

from camshaft.runners.batch import pack, unpack
from camshaft.types import BlockCopy, RawLogprob, Row, RowResult, StepPlan, TablePatch


def test_a_plan_becomes_int32_arrays_in_row_order() -> None:
    plan = StepPlan(
        rows=(
            Row(slot=3, start=0, ids=(5, 6, 7), n_sample=0, patches=(TablePatch(0, 0, (9, 10)), TablePatch(1, 0, (11,))), score=True),
            Row(slot=1, start=40, ids=(8,), n_sample=1),
        ),
        copies=(BlockCopy(2, 4),),
    )
    ids, rows, patches, copies = pack(plan)
    assert ids.tolist() == [5, 6, 7, 8]
    assert rows.tolist() == [[3, 0, 3, 0, 1], [1, 40, 1, 1, 0]]
    assert patches.tolist() == [3, 0, 0, 2, 9, 10, 3, 1, 0, 1, 11]
    assert copies.tolist() == [[2, 4]]
    assert all(a.dtype == np.int32 and a.flags.c_contiguous for a in (ids, rows, patches, copies))


def test_an_empty_plan_keeps_its_shapes() -> None:
    ids, rows, patches, copies = pack(StepPlan(rows=()))
    assert (ids.shape, rows.shape, patches.shape, copies.shape) == ((0,), (0, 5), (0,), (0, 2))
    assert all(a.dtype == np.int32 for a in (ids, rows, patches, copies))


def test_answers_become_row_results() -> None:
    answer = [([7], [(7, -0.5, [(7, -0.5), (2, -1.0)])], []), ([], [], [(4, -2.0, [])])]
    assert unpack(answer) == (
        RowResult(ids=(7,), logprobs=(RawLogprob(7, -0.5, ((7, -0.5), (2, -1.0))),)),
        RowResult(ids=(), scores=(RawLogprob(4, -2.0),)),
    )
