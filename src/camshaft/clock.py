"""Clocks: the machine's, and one that a test or a simulator turns by hand."""

from __future__ import annotations

import time


class SystemClock:
    """Monotonic seconds of this machine. Compare values only within one process."""

    def now(self) -> float:
        return time.monotonic()


class ManualClock:
    """Stands still until told otherwise."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("time does not run backwards")
        self._now += seconds
