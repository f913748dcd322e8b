"""Sequence: one request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from camshaft.kv.table import Table
from camshaft.types import Request


class Sequence:
    """State is a few ordered numbers: 0 <= n_computed < n_known <= n_limit, with n_known = len(ids).

    No phase flag: prefill, a chunk of it and decode are all "n_todo tokens of this sequence". Engine thread only.
    """

    __slots__ = (
        "arrived_at",
        "blocked_at",
        "ids",
        "key",
        "n_cached",
        "n_computed",
        "n_limit",
        "n_preempted",
        "n_prompt",
        "n_scored",
        "rank",
        "request",
        "slot",
        "started_at",
        "table",
    )

    def __init__(self, key: int, request: Request, prompt_ids: Seq[int], arrived_at: float) -> None:
        self.key = key  # order of arrival; ours alone, since two clients may choose the same request id
        self.request = request
        self.n_prompt = len(prompt_ids)
        self.ids = list(prompt_ids)
        if request.resume is not None:
            self.ids.extend(request.resume.ids)
        self.n_computed = 0
        self.n_limit = 0  # set when the scheduler takes it
        self.n_cached: int | None = None  # prompt tokens found in the cache at first admission; None before
        # Prompt tokens whose log-probability is known, the first included, though nothing predicts it; -1 where nobody asked.
        # They precede the first output, so whoever carries output over has them.
        self.n_scored = -1 if request.sampling.prompt_logprobs is None or len(self.ids) > self.n_prompt else 0
        self.n_preempted = 0
        self.slot = -1  # -1: waiting
        self.table: Table | None = None  # None: waiting
        self.rank = 0  # priority at admission, with its age counted; lower is better
        self.arrived_at = arrived_at
        self.started_at: float | None = None  # first admission
        self.blocked_at: float | None = None  # since when it is first in line and does not fit

    def __repr__(self) -> str:
        return f"Sequence({self.key}, {self.n_computed}/{self.n_known}/{self.n_limit}, slot={self.slot})"

    @property
    def n_known(self) -> int:
        return len(self.ids)

    @property
    def n_todo(self) -> int:
        """Known tokens whose KV is still to compute. 1: decoding."""
        return len(self.ids) - self.n_computed

    @property
    def n_output(self) -> int:
        return len(self.ids) - self.n_prompt

    @property
    def wants_scores(self) -> bool:
        """Whether prompt log-probabilities are still owed; then nothing may be read from the cache."""
        return 0 <= self.n_scored < self.n_prompt

    def check(self) -> None:
        """The order of the numbers. Raises AssertionError."""
        assert 0 <= self.n_computed < self.n_known <= self.n_limit, repr(self)
        assert (self.slot >= 0) == (self.table is not None), repr(self)
