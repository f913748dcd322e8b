"""ReplicaConfig: how long each state of a replica may last, and what follows when one dies."""

from __future__ import annotations

from dataclasses import dataclass

from camshaft.config import opt


@dataclass(frozen=True)
class ReplicaConfig:
    """The life of a replica."""

    start_s: float = opt(120.0, "longest time from start until the model is loaded", lo=0.01, hi=86_400)
    warm_s: float = opt(60.0, "longest time for the first prefill and decode", lo=0.01, hi=86_400)
    drain_s: float = opt(60.0, "longest time that running streams may take to end when a replica drains", lo=0, hi=86_400)
    close_s: float = opt(10.0, "longest time to stop before it is killed", lo=0, hi=3600)
    ping_s: float = opt(1.0, "seconds between two questions whether it is alive", lo=0.01, hi=3600)
    stall_s: float = opt(10.0, "silence after which it counts as lost", lo=0.02, hi=3600)
    step_s: float = opt(300.0, "longest time for one step before it counts as hung", lo=0.1, hi=86_400)
    backoff_first_s: float = opt(0.5, "wait before the first restart; doubles with each crash that follows soon", lo=0, hi=3600)
    backoff_most_s: float = opt(30.0, "longest wait before a restart", lo=0, hi=86_400)
    steady_s: float = opt(5.0, "so long ready, and the crashes before do not count as a row any more", lo=0, hi=86_400)
    crash_row: int = opt(5, "crashes in a row after which it is given up", lo=1, hi=1000)
    crash_most: int = opt(30, "crashes within ten minutes after which it is given up", lo=1, hi=1000)
