"""Crashes: how long a replica rests after one, and when it is given up."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from camshaft.cluster.config import ReplicaConfig

WINDOW_S = 600.0
FIND_S = 10.0  # longest rest of what somebody else runs: a look at it is cheap, and one that came back is to be found


class Crashes:
    """Of one replica. `jitter` gives numbers in [0, 1), so that replicas that died together do not come back together.

    patient: it is somebody else's, who may mend it at any time. It is never given up.
    """

    def __init__(self, config: ReplicaConfig, jitter: Callable[[], float], *, patient: bool = False) -> None:
        self._config = config
        self._jitter = jitter
        self._patient = patient
        self._at: deque[float] = deque(maxlen=config.crash_most)
        self.in_a_row = 0

    def crashed(self, ready_s: float, now: float) -> float | None:
        """It was ready for so long. Seconds to the next start; None: it has crashed too often, and starting it again does nothing else."""
        config = self._config
        self.in_a_row = 1 if ready_s >= config.steady_s > 0 else self.in_a_row + 1
        self._at.append(now)
        often = len(self._at) == config.crash_most and now - self._at[0] <= WINDOW_S
        if not self._patient and (often or self.in_a_row >= config.crash_row):
            return None
        most_s = min(config.backoff_most_s, FIND_S) if self._patient else config.backoff_most_s
        wait_s = min(most_s, config.backoff_first_s * 2.0 ** min(self.in_a_row - 1, 32))
        return wait_s * (0.5 + 0.5 * self._jitter())

    def forget(self) -> None:
        """Somebody has seen to it."""
        self._at.clear()
        self.in_a_row = 0
