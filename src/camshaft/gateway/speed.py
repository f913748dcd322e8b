"""How fast a replica works, measured by what comes back from it."""

from __future__ import annotations

import math

_LATELY = 12  # half lives of a speed, busy or not, are one of the work done lately


class Rate:
    """Work per second of time in which there was some to do; recent time counts more, idle time not at all."""

    __slots__ = ("_busy_s", "_done", "_done_at", "_half_s", "_mark", "_work", "pending")

    def __init__(self, half_s: float) -> None:
        self._half_s = half_s
        self._work = 0.0
        self._busy_s = 0.0
        self._done = 0.0  # by the clock, not by busy time
        self._done_at = 0.0
        self._mark = 0.0  # up to where time is accounted for, while something is pending
        self.pending = 0  # pieces of work in hand

    def begin(self, now: float) -> None:
        if not self.pending:
            self._mark = now
        self.pending += 1

    def credit(self, work: float, now: float) -> None:
        """So much was done since the last credit, or since there was something to do."""
        busy_s = max(0.0, now - self._mark)
        kept = math.exp2(-busy_s / self._half_s)
        self._work = self._work * kept + work
        self._busy_s = self._busy_s * kept + busy_s
        self._mark = now
        self._done = self.lately(now) + work
        self._done_at = now

    def end(self) -> None:
        self.pending -= 1

    @property
    def totals(self) -> tuple[float, float]:
        """(work, busy seconds), as far as they are remembered; for the mean over a pool."""
        return self._work, self._busy_s

    def lately(self, now: float) -> float:
        """Work done, old work counting less and less, however busy it was since."""
        return self._done * math.exp2(-max(0.0, now - self._done_at) / (_LATELY * self._half_s))

    def silent_s(self, now: float) -> float:
        """Busy time that no credit accounts for yet."""
        return max(0.0, now - self._mark) if self.pending else 0.0

    def per_s(self, usual: float, in_hand: float, now: float) -> float:
        """The measured rate, leaning on `usual` (the pool's) like one busy second of evidence.

        One that has fallen silent is not as fast as it was: were all work `in_hand` done this instant, the rate could be no more than
        that over the time since the last sign of life.
        """
        work, busy_s = self._work + usual, self._busy_s + 1.0
        return min(work / busy_s, (work + in_hand) / (busy_s + self.silent_s(now))) if self.pending else work / busy_s


def mean(rates: list[Rate], usual: float) -> float:
    """Of a pool, by busy time; `usual` where nothing was measured."""
    work = sum(rate.totals[0] for rate in rates)
    busy_s = sum(rate.totals[1] for rate in rates)
    return work / busy_s if busy_s > 0 and work > 0 else usual
