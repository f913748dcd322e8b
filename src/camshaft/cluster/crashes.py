"""Crashes: how long a replica rests after one, and when it is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from camshaft.cluster.config import ReplicaConfig

WINDOW_S = 600.0


class Crashes:
    """Of one replica. `jitter` gives numbers in [0, 1), so that replicas that died together do not come back together."""

    def __init__(self, config: ReplicaConfig, jitter: Callable[[], float]) -> None:
        self._config = config
        self._jitter = jitter
        self._at: deque[float] = deque(maxlen=config.crash_most)
        self.in_a_row = 0

    def crashed(self, ready_s: float, now: float) -> float | None:
        """It was ready for so long. Seconds to the next start; None: it has crashed too often, and starting it again does nothing else."""
        config = self._config
        self.in_a_row = 1 if ready_s >= config.steady_s > 0 else self.in_a_row + 1
        self._at.append(now)
        often = len(self._at) == config.crash_most and now - self._at[0] <= WINDOW_S
        if often or self.in_a_row >= config.crash_row:
            return None
        wait_s = min(config.backoff_most_s, config.backoff_first_s * 2.0 ** min(self.in_a_row - 1, 32))
        return wait_s * (0.5 + 0.5 * self._jitter())

    def forget(self) -> None:
        """Somebody has seen to it."""
        self._at.clear()
        self.in_a_row = 0
