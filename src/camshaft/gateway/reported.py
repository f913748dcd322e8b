"""Reported: what a replica says of itself, set against what we had there, so that what is not ours shows."""

from __future__ import annotations

from camshaft.types import Load


class Reported:
    """The last report, while it is fresh. A report is a little older than its coming, and ours come and go meanwhile: so the most that we
    had in flight since the report before the last one is taken off, and nobody is blamed for what was ours."""

    __slots__ = ("_before", "_fresh_s", "_load", "_most", "_ours")

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._load: Load | None = None
        self._most = 0  # in flight at once, since the last report
        self._before = 0  # between the last two
        self._ours = 0  # when the last report was true, at most

    def note(self, n: int) -> None:
        """So many are ours now."""
        self._most = max(self._most, n)

    def take(self, load: Load, n: int) -> None:
        """A report came while `n` are ours. The same one again says nothing new."""
        if self._load is not None and load.at <= self._load.at:
            return
        self._load = load
        self._ours = max(self._before, self._most)
        self._before, self._most = self._most, n

    def others(self, now: float) -> int:
        """Requests there that are not ours."""
        if not self._is_fresh(now) or self._load is None or self._load.running < 0:
            return 0
        return max(0, self._load.running + max(0, self._load.waiting) - self._ours)

    def idle_utilisation(self, now: float) -> float:
        """Share of its machine that was in use though we had nothing there: somebody else's work."""
        if not self._is_fresh(now) or self._load is None or self._ours:
            return 0.0
        return min(1.0, max(0.0, self._load.utilisation))

    def _is_fresh(self, now: float) -> bool:
        return self._load is not None and now - self._load.at <= self._fresh_s
