"""Breaker: one that failed too often rests, for longer each time, and comes back through a few probes.

Only faults open it and only successes close it. Neutral outcomes (client errors, back-pressure, clients that left) do neither.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from camshaft.config import opt
from camshaft.gateway.outcome import Outcome

State = Literal["closed", "open", "half_open"]
_REMEMBERED = 512  # outcomes, whatever the window


@dataclass(frozen=True)
class BreakerConfig:
    """When a replica or a version rests after faults."""

    consecutive: int = opt(5, "faults in a row that open it; 0 looks at the rate alone", lo=0, hi=10_000)
    rate: float = opt(0.5, "share of faults among faults and successes that opens it", lo=0.01, hi=1)
    volume: int = opt(10, "least faults and successes in the window before the rate counts", lo=1, hi=500)
    window_s: float = opt(30.0, "how far back the rate looks", lo=0.1, hi=3600)
    open_s: float = opt(5.0, "first rest; each one after a failed probe is twice as long", lo=0.01, hi=3600)
    open_most_s: float = opt(12.0, "longest rest: so soon, and jitter, one that came back is found", lo=0.01, hi=86_400)
    jitter: float = opt(0.2, "share by which a rest varies, so that many do not come back at once", lo=0, hi=0.9)
    probes: int = opt(2, "requests in flight at most while it is tried again", lo=1, hi=100)
    successes: int = opt(2, "probes that must succeed before it is closed", lo=1, hi=100)
    floor: float = opt(0.5, "share of replicas that stay askable; where fewer would, all are asked", lo=0, hi=1)


class Turn(NamedTuple):
    """A change of state with what led to it, for the log of events."""

    subject: str
    before: State
    after: State
    evidence: dict[str, float]


class Trial:
    """Permission to ask once. Closed exactly once with its outcome; later closes do nothing."""

    __slots__ = ("_breaker", "_era", "_open", "_probe")

    def __init__(self, breaker: Breaker, era: int, probe: bool) -> None:
        self._breaker = breaker
        self._era = era
        self._probe = probe
        self._open = True

    def close(self, outcome: Outcome, now: float) -> None:
        if self._open:
            self._open = False
            self._breaker._closed(outcome, self._era, self._probe, now)


class Breaker:
    """Of one replica or of one version. `told` hears each change of state."""

    def __init__(self, subject: str, config: BreakerConfig, dice: random.Random, told: Callable[[Turn], None] = lambda turn: None) -> None:
        self.subject = subject
        self._config = config
        self._dice = dice
        self._told = told
        self._state: State = "closed"
        self._era = 0  # of the state: what was asked in an earlier one says nothing about this one
        self._seen: deque[tuple[float, bool]] = deque(maxlen=_REMEMBERED)  # (at, whether a fault), oldest first
        self._streak = 0  # faults in a row
        self._rests = 0  # in a row, without having been closed between
        self._until = -math.inf  # the end of the rest
        self._probing = 0
        self._proved = 0

    def state(self, now: float) -> State:
        if self._state == "open" and now >= self._until:
            self._turn("half_open", now)
        return self._state

    def may_ask(self, now: float) -> bool:
        state = self.state(now)
        return state == "closed" or (state == "half_open" and self._probing < self._config.probes)

    def wants_probe(self, now: float) -> bool:
        """Half open, and nobody is on the way to find out."""
        return self.state(now) == "half_open" and not self._probing

    def opens_in_s(self, now: float) -> float:
        """Seconds until it may be asked again; 0 where it may now."""
        return max(0.0, self._until - now) if self.state(now) == "open" else 0.0

    def ask(self, now: float, force: bool = False) -> Trial | None:
        """None where it rests or enough probes are out. `force` asks all the same, and its outcome then counts only if it is closed."""
        may = self.may_ask(now)
        if not may and not force:
            return None
        probe = may and self._state == "half_open"
        self._probing += probe
        return Trial(self, self._era, probe)

    def retire(self) -> None:
        """It is gone: what is still out tells nothing any more."""
        self._era += 1

    def _closed(self, outcome: Outcome, era: int, probe: bool, now: float) -> None:
        if era != self._era:
            return
        self._probing -= probe
        if outcome is Outcome.NEUTRAL or (self._state != "closed" and not probe):
            return
        fault = outcome is Outcome.FAULT
        self._seen.append((now, fault))
        self._streak = self._streak + 1 if fault else 0
        if probe:
            self._proved += not fault
            if fault:
                self._turn("open", now)
            elif self._proved >= self._config.successes:
                self._turn("closed", now)
        elif fault and self._too_many(now):
            self._turn("open", now)

    def _too_many(self, now: float) -> bool:
        n, faults = self._counts(now)
        in_a_row = self._config.consecutive and self._streak >= self._config.consecutive
        return bool(in_a_row) or (n >= self._config.volume and faults >= self._config.rate * n)

    def _counts(self, now: float) -> tuple[int, int]:
        while self._seen and self._seen[0][0] < now - self._config.window_s:
            self._seen.popleft()
        return len(self._seen), sum(fault for _, fault in self._seen)

    def _turn(self, after: State, now: float) -> None:
        n, faults = self._counts(now)
        before, self._state = self._state, after
        evidence: dict[str, float] = {"n": n, "faults": faults, "in_a_row": self._streak}
        self._era += 1
        self._probing = self._proved = 0
        if after == "open":
            rest_s = min(self._config.open_s * 2.0 ** min(self._rests, 32), self._config.open_most_s)
            rest_s *= 1 + self._config.jitter * (2 * self._dice.random() - 1)
            self._rests += 1
            self._until = now + rest_s
            evidence["rest_s"] = round(rest_s, 3)
        elif after == "closed":
            self._rests = self._streak = 0
            self._seen.clear()
        self._told(Turn(self.subject, before, after, evidence))

    def snapshot(self, now: float) -> dict[str, Any]:
        """Plain data; times as seconds from now, since clocks differ between processes."""
        state = self.state(now)
        return {"state": state, "rests": self._rests, "left_s": self.opens_in_s(now)}

    def restore(self, saved: Mapping[str, Any], now: float) -> None:
        """Goes on where `snapshot` stood; what makes no sense is left out. A half-open one is tried again at once."""
        state, rests, left_s = saved.get("state"), saved.get("rests"), saved.get("left_s")
        if state not in ("open", "half_open") or not isinstance(rests, int) or not isinstance(left_s, int | float):
            return
        self._rests = max(1, rests)
        self._state = "open"
        self._era += 1
        self._until = now + min(max(0.0, float(left_s)), 2 * self._config.open_most_s)


def must_panic(n: int, n_closed: int, floor: float) -> bool:
    """Whether so few of `n` are left that ejecting them would do more harm than asking them."""
    return n_closed < math.ceil(floor * n)
