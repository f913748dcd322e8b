"""Policy: who of the waiting is next, and who of the running goes first when room is needed. Pure functions of numbers."""

from __future__ import annotations

import math
from typing import Protocol

from camshaft.sched.sequence import Sequence


class Policy(Protocol):
    def order(self, seq: Sequence) -> float:
        """Sort key of a waiting sequence, smallest first. It must not change while it waits."""
        ...

    def rank(self, seq: Sequence, now: float) -> int:
        """Its class at admission, lower is better; kept while it runs."""
        ...

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether `waiting` may take the place of `running`."""
        ...


class Fcfs:
    """First come, first served."""

    def order(self, seq: Sequence) -> float:
        return seq.arrived_at

    def rank(self, seq: Sequence, now: float) -> int:
        return 0

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        return False


class Priority:
    """Lower priority numbers first; `age_s` seconds of waiting are worth one step, so that nobody waits for ever.

    All age at one rate, so the order of two waiting sequences never changes and the key is a constant:
    p - (now - arrived) / age < q - (now - arrived') / age  if and only if  p * age + arrived < q * age + arrived'.
    """

    def __init__(self, age_s: float) -> None:
        self._age_s = age_s

    def order(self, seq: Sequence) -> float:
        return seq.request.priority * self._age_s + seq.arrived_at

    def rank(self, seq: Sequence, now: float) -> int:
        priority = seq.request.priority
        aged = math.ceil(priority - (now - seq.arrived_at) / self._age_s - 1e-9)
        # Age lifts into the best class and no further: there the order of arrival decides, so that the oldest stays the oldest.
        return max(min(priority, 0), aged)

    def may_displace(self, waiting: Sequence, running: Sequence) -> bool:
        # The rank of the running one counts its age: a batch request that waited long enough is not driven out again and again.
        return waiting.request.priority < running.rank


def make_policy(name: str, age_s: float) -> Policy:
    """The policy of that name (EngineConfig.policy)."""
    return Fcfs() if name == "fcfs" else Priority(age_s)


def least_valuable(running: list[Sequence]) -> Sequence:
    """The one to preempt: worst rank, then the youngest. While another runs it is never the oldest of the best rank: somebody gets on."""
    return max(running, key=lambda s: (s.rank, s.key))
