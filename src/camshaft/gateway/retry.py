"""Retry budget: tries beyond the first are a share of traffic, so that a bad hour is not made worse by everybody asking twice."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from camshaft.config import opt

_SLICES = 10  # of the window


@dataclass(frozen=True)
class RetryConfig:
    """What is tried again."""

    tries: int = opt(4, "replicas that one request may ask in turn, the first included", lo=1, hi=100)
    share: float = opt(0.2, "tries beyond the first, as a share of the requests in the window", lo=0, hi=10)
    floor_per_s: float = opt(3.0, "tries beyond the first that are allowed however little traffic there is", lo=0, hi=10_000)
    window_s: float = opt(10.0, "how far back traffic is counted", lo=0.1, hi=3600)
    wait_s: float = opt(0.05, "wait before the second try beyond the first; doubles from there, with jitter", lo=0, hi=60)
    wait_most_s: float = opt(2.0, "longest such wait", lo=0, hi=600)


class RetryBudget:
    """Counts requests and retries over a sliding window of ten slices."""

    def __init__(self, config: RetryConfig, dice: random.Random) -> None:
        self._config = config
        self._dice = dice
        self._slices: dict[int, list[int]] = {}  # slice number -> [requests, retries]

    def request(self, now: float) -> None:
        """A request came; once, however often it is tried."""
        self._slice(now)[0] += 1

    def spend(self, n_tries: int, now: float) -> bool:
        """Whether a request that was tried `n_tries` times may be tried again; if so it is counted."""
        current = self._slice(now)
        if n_tries >= self._config.tries or self.left(now) < 1:
            return False
        current[1] += 1
        return True

    def left(self, now: float) -> float:
        """Retries that the window still has room for."""
        self._slice(now)
        requests, retries = (sum(counts[i] for counts in self._slices.values()) for i in (0, 1))
        return self._config.floor_per_s * self._config.window_s + self._config.share * requests - retries

    def wait_s(self, n_tries: int) -> float:
        """Before the next try after `n_tries`. The first goes at once: it goes elsewhere."""
        if n_tries < 2:
            return 0.0
        most = min(self._config.wait_s * 2.0 ** min(n_tries - 2, 32), self._config.wait_most_s)
        return most * (0.5 + 0.5 * self._dice.random())

    def _slice(self, now: float) -> list[int]:
        number = math.floor(now * _SLICES / self._config.window_s)
        for old in [k for k in self._slices if k <= number - _SLICES]:
            del self._slices[old]
        return self._slices.setdefault(number, [0, 0])
