"""Report: what the engine tells its metrics and its log."""

from __future__ import annotations

import logging

from camshaft.engine.job import Job
from camshaft.errors import CamshaftError
from camshaft.observe.metrics import EngineMetrics, Lifetime, StepParts, StepStats
from camshaft.sched.plan import Planned
from camshaft.sched.scheduler import Scheduler
from camshaft.sched.sequence import Sequence

log = logging.getLogger(__name__)

_WASTE_EVERY = 16  # steps; counting it looks at every running sequence


class Report:
    """Counts between steps, told once per step. Engine thread only."""

    def __init__(self, metrics: EngineMetrics, scheduler: Scheduler) -> None:
        self.metrics = metrics
        self._scheduler = scheduler
        self._ttft_s: list[float] = []
        self._gaps_s: list[float] = []
        self._evicted: dict[str, int] = {}  # evictions told so far, by class
        self._n_steps = 0
        self._waste_share = 0.0

    def refused(self, error: CamshaftError) -> None:
        self.metrics.refused(error.code)

    def admitted(self, seq: Sequence, now: float) -> None:
        self.metrics.admitted(now - seq.arrived_at, n_prompt=seq.n_prompt, n_cached=seq.n_cached or 0)

    def preempted(self, seqs: list[Sequence]) -> None:
        self.metrics.preempted(len(seqs))
        pool = self._scheduler.kv.pool
        for seq in seqs:
            times, full = seq.n_preempted, f"{pool.n_in_use}/{pool.n_usable}"
            log.info("preempted request=%s tokens=%d times=%d blocks_in_use=%s", seq.request.id, seq.n_known, times, full)

    def token(self, job: Job, now: float) -> None:
        """A token of this job was sampled."""
        if job.last_at is None:
            job.first_at = now
            self._ttft_s.append(now - job.seq.arrived_at)
        else:
            self._gaps_s.append(now - job.last_at)
        job.last_at = now

    def step(self, planned: Planned) -> None:
        """After a step."""
        scheduler, pool = self._scheduler, self._scheduler.kv.pool
        if self._n_steps % _WASTE_EVERY == 0:
            self._waste_share = self._waste()
        self._n_steps += 1
        self.metrics.step(
            StepStats(
                running=len(scheduler.running),
                waiting=len(scheduler.waiting),
                kv_usage=pool.n_in_use / pool.n_usable,
                kv_waste=self._waste_share,
                n_tokens=planned.n_prefill + planned.n_decode,
                n_prompt=planned.n_prefill,
                n_generated=len(self._ttft_s) + len(self._gaps_s),
                ttft_s=self._ttft_s,
                gaps_s=self._gaps_s,
            )
        )
        self._ttft_s, self._gaps_s = [], []
        for kind, n in pool.evicted.items():
            if n > self._evicted.get(kind, 0):
                self.metrics.evicted(kind, n - self._evicted.get(kind, 0))
                self._evicted[kind] = n

    def spent(self, parts: StepParts) -> None:
        """After a step and all that followed from it."""
        self.metrics.spent(parts)

    def idle(self) -> None:
        """After a turn that computed nothing: whoever was inside may have left since the last step."""
        scheduler, pool = self._scheduler, self._scheduler.kv.pool
        self.metrics.load(len(scheduler.running), len(scheduler.waiting), pool.n_in_use / pool.n_usable, self._waste())

    def _waste(self) -> float:
        kv = self._scheduler.kv
        held = kv.pool.n_in_use * kv.block_size
        return kv.n_wasted(self._scheduler.tables()) / held if held else 0.0

    def ended(self, job: Job, reason: str, now: float) -> None:
        """A job that was taken is over, one way or the other."""
        seq = job.seq
        if seq.started_at is None:
            self.metrics.refused(reason)
            return
        first = job.first_at if job.first_at is not None else now
        last = job.last_at if job.last_at is not None else now
        self.metrics.finished(
            Lifetime(reason, now - seq.arrived_at, first - seq.started_at, last - first, seq.n_prompt, seq.n_output),
        )
        self.metrics.stage("detokenise", job.detok_s)
        self.metrics.stage("flush", job.flush_s)
