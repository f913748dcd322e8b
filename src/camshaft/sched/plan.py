"""Planned: what the scheduler decided for one step."""

from __future__ import annotations

from typing import NamedTuple

from camshaft.sched.sequence import Sequence
from camshaft.types import StepPlan


class Planned(NamedTuple):
    """`plan.rows[i]` belongs to `seqs[i]`. Before the step, `released` slots are let go, then `opened` sequences are bound to theirs."""

    plan: StepPlan
    seqs: list[Sequence]
    opened: list[Sequence]
    released: list[int]
    preempted: list[Sequence]
    n_prefill: int  # tokens of rows with more than one token
    n_decode: int  # rows of one token

    def __str__(self) -> str:
        return f"{len(self.seqs)} rows, {self.plan.n_tokens} tokens, {len(self.plan.copies)} copies, {len(self.opened)} opened"
