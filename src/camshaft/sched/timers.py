"""Timers: which sequence runs out of time next."""

from __future__ import annotations

import heapq
from collections.abc import Container


class Timers:
    """A heap of (when, key). Entries of finished sequences are dropped lazily, and swept before they outnumber the live ones."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, when: float, key: int) -> None:
        heapq.heappush(self._heap, (when, key))

    def due(self, now: float) -> list[int]:
        """Keys whose time has come, removed from here."""
        keys = []
        while self._heap and self._heap[0][0] <= now:
            keys.append(heapq.heappop(self._heap)[1])
        return keys

    def next_at(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def sweep(self, live: Container[int], n_live: int) -> None:
        """Drop entries of keys that are not live, once they are the majority."""
        if len(self._heap) > 4 * n_live + 64:
            self._heap = [entry for entry in self._heap if entry[1] in live]
            heapq.heapify(self._heap)
