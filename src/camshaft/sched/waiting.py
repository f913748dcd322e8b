"""Waiting: the sequences in line, in the order of the policy."""

from __future__ import annotations

import bisect
from collections.abc import Iterator

from camshaft.sched.policy import Policy
from camshaft.sched.sequence import Sequence


class Waiting:
    """A sorted list. Insertion and removal search in O(log n) and move pointers, which for any bounded queue is quick."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._line: list[tuple[float, int, Sequence]] = []
        self.n_tokens = 0  # known tokens in line

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Sequence]:
        return (seq for _, _, seq in self._line)

    def first(self, n: int) -> list[Sequence]:
        """The first `n` in line."""
        return [seq for _, _, seq in self._line[:n]]

    def add(self, seq: Sequence) -> None:
        bisect.insort(self._line, (self._policy.order(seq), seq.key, seq))
        self.n_tokens += seq.n_known

    def remove(self, seq: Sequence) -> None:
        order = self._policy.order(seq)
        i = bisect.bisect_left(self._line, (order, seq.key), key=lambda entry: entry[:2])
        assert self._line[i][2] is seq
        del self._line[i]
        self.n_tokens -= seq.n_known
