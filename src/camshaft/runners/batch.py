"""A step's plan as the flat int32 arrays that the native program reads, and its answer as types again.

Runs once a step for every running sequence, so a decode row is kept to a handful of list operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from camshaft.types import RawLogprob, RowResult, StepPlan

NativeLogprob = tuple[int, float, list[tuple[int, float]]]
NativeRow = tuple[list[int], list[NativeLogprob], list[NativeLogprob]]


class Batch(NamedTuple):
    """See `_native.Program.run`. T tokens, R rows, C copies."""

    ids: NDArray[np.int32]  # [T]
    rows: NDArray[np.int32]  # [R, 5]: slot, start, n_new, n_sample, score
    patches: NDArray[np.int32]  # flat: slot, group, index, n, then n block ids; repeated
    copies: NDArray[np.int32]  # [C, 2]: src, dst


_NO_PATCHES = np.zeros(0, np.int32)
_NO_COPIES = np.zeros((0, 2), np.int32)


def pack(plan: StepPlan) -> Batch:
    ids: list[int] = []
    rows: list[int] = []
    patches: list[int] = []
    for row in plan.rows:
        ids += row.ids
        rows += (row.slot, row.start, len(row.ids), row.n_sample, row.score)
        for patch in row.patches:
            patches += (row.slot, patch.group, patch.index, len(patch.ids))
            patches += patch.ids
    return Batch(
        np.array(ids, np.int32),
        np.array(rows, np.int32).reshape(-1, 5),
        np.array(patches, np.int32) if patches else _NO_PATCHES,
        np.array([(c.src, c.dst) for c in plan.copies], np.int32) if plan.copies else _NO_COPIES,
    )


def unpack(answer: list[NativeRow]) -> tuple[RowResult, ...]:
    return tuple(RowResult(tuple(ids), _logprobs(logprobs), _logprobs(scores)) for ids, logprobs, scores in answer)


def _logprobs(raw: list[NativeLogprob]) -> tuple[RawLogprob, ...]:
    return tuple(RawLogprob(id, logprob, tuple(top)) for id, logprob, top in raw) if raw else ()
