"""Silence: how long the other end has said nothing, as we could have heard it."""

from __future__ import annotations


class Silence:
    """Time in which we ourselves slept does not count: a gateway that was stopped for a minute must not bury its replicas on waking up."""

    def __init__(self, tick_s: float, longest_s: float, now: float) -> None:
        """`tick_s`: how often `tick` is meant to be called."""
        self._most_s = 2 * tick_s
        self._longest_s = longest_s
        self._ticked_at = now
        self.silent_s = 0.0

    def heard(self) -> None:
        self.silent_s = 0.0

    def tick(self, now: float) -> bool:
        """Whether it has been silent for too long."""
        self.silent_s += min(now - self._ticked_at, self._most_s)
        self._ticked_at = now
        return self.silent_s >= self._longest_s
