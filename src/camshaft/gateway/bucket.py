"""Bucket: a limit per minute that refills continuously, so that there is no edge of a window to crowd at."""

from __future__ import annotations

_ROUNDING = 1e-6  # what was computed to fit at a time must fit then


class Bucket:
    """Holds up to a minute's worth and refills at a minute's worth a minute. In any t seconds at most (1 + t / 60) * per_minute leave it.

    The level may be negative: debts are promised places, and answers that became longer than was reserved for them. `kept` was set aside
    for places that nobody fetched yet; it counts as in the bucket, or a late fetch would come on top of a full one.
    """

    __slots__ = ("_at", "_level", "kept", "per_minute")

    def __init__(self, per_minute: float, now: float) -> None:
        self.per_minute = per_minute
        self.kept = 0.0
        self._level = per_minute
        self._at = now

    def level(self, now: float) -> float:
        """What may be taken now."""
        passed_s = max(0.0, now - self._at)
        self._at = max(now, self._at)
        return self._set(self._level + passed_s * self.per_minute / 60.0)

    def wait_s(self, n: float, now: float) -> float:
        """Seconds until `n` fits; 0 where it fits now. `n` is at most a minute's worth."""
        short = n - self.level(now)
        return short * 60.0 / self.per_minute if short > _ROUNDING else 0.0

    def full_s(self, now: float) -> float:
        """Seconds until it is full."""
        return max(0.0, self.per_minute - self.level(now)) * 60.0 / self.per_minute

    def take(self, n: float, now: float) -> None:
        self._set(self.level(now) - n)

    def give(self, n: float, now: float) -> None:
        """Back, or more (n < 0): what was taken and not used, or used beyond it."""
        self._set(self.level(now) + n)

    def keep(self, n: float, now: float) -> None:
        """Take it for a place."""
        self.take(n, now)
        self.kept += n

    def fetch(self, n: float, now: float) -> None:
        """A place that was kept is used."""
        self.level(now)  # time before now has passed beside what was kept
        self.kept = max(0.0, self.kept - n)  # it may be a place of before this limit was set

    def resize(self, per_minute: float, now: float) -> None:
        """Another limit from now on; what is in use stays in use."""
        used = self.per_minute - self.level(now)
        self.per_minute = per_minute
        self._set(per_minute - used)

    def restore(self, level: float, kept: float, now: float) -> None:
        self._at, self.kept = now, kept
        self._set(level)

    def _set(self, level: float) -> float:
        self._level = min(self.per_minute - self.kept, level)
        return self._level
