"""Drain: the rate at which a line is worked off, measured while there is work in it."""

from __future__ import annotations

import math

from msgspec import Struct


class Amount(Struct, frozen=True):
    """So many requests, with so many prompt tokens, thought to cost so much work (weighted tokens)."""

    n_requests: float = 0.0
    n_tokens: float = 0.0
    work: float = 0.0


class Drain:
    """Departures over busy seconds, older ones counting less. Idle time says nothing about speed and is not counted, nor is one that went
    straight through: it took a place that was free anyway.
    """

    LEAST_DEPARTURES = 8  # below it, and below LEAST_BUSY_S of work, a rate is a guess
    LEAST_BUSY_S = 1.0

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self._sums = [0.0, 0.0, 0.0]  # requests, tokens, work
        self._busy_s = 0.0
        self._n_seen = 0
        self._at: float | None = None  # the last look; None: nothing waits

    def look(self, now: float, *, busy: bool) -> None:
        """Time passed until `now`; from here on there is work, or not."""
        if self._at is not None and now > self._at:
            gap = now - self._at
            keep = math.exp(-gap / self._memory_s)
            self._busy_s = self._busy_s * keep + self._memory_s * (1 - keep)  # the exact integral, so that the rate has no bias
            self._sums = [total * keep for total in self._sums]
        self._at = now if busy else None

    def left(self, n_tokens: int, work: float) -> None:
        """One went to a replica, at the moment of the last look."""
        self._n_seen += 1
        self._sums = [self._sums[0] + 1, self._sums[1] + n_tokens, self._sums[2] + work]

    def rate(self) -> Amount | None:
        """A second's; None where nothing was measured yet."""
        if self._busy_s <= 0.0 or not self._sums[0]:
            return None
        return Amount(*(total / self._busy_s for total in self._sums))

    @property
    def well_founded(self) -> bool:
        """Whether decisions against a client may rest on it."""
        return self._n_seen >= self.LEAST_DEPARTURES and self._busy_s >= self.LEAST_BUSY_S
