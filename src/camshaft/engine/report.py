"""Report: what the engine tells its metrics and its log."""

from __future__ import annotations

import logging

from camshaft.engine.job import Job
from camshaft.errors import CamshaftError
from camshaft.observe.metrics import EngineMetrics, Lifetime, StepParts, Steps
from camshaft.sched.plan import Planned
from camshaft.sched.scheduler import Scheduler
from camshaft.sched.sequence import Sequence

log = logging.getLogger(__name__)

TELL_S = 0.1  # how old the exported numbers may be while steps go on; telling them costs as much as planning a step


class Report:
    """Counts between steps, told now and then and when the engine falls idle. Engine thread only."""

    def __init__(self, metrics: EngineMetrics, scheduler: Scheduler) -> None:
        self.metrics = metrics
        self._scheduler = scheduler
        self._ttft_s: list[float] = []
        self._gaps_s: list[float] = []
        self._evicted: dict[str, int] = {}  # evictions told so far, by class
        self._step_tokens: list[int] = []
        self._parts = StepParts(0.0, 0.0, 0.0, 0.0)
        self._n_prompt = 0
        self._told_at = float("-inf")

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

    def step(self, planned: Planned, parts: StepParts, now: float) -> None:
        """After a step and all that followed from it."""
        was = self._parts
        self._parts = StepParts(was[0] + parts[0], was[1] + parts[1], was[2] + parts[2], was[3] + parts[3])
        self._step_tokens.append(planned.n_prefill + planned.n_decode)
        self._n_prompt += planned.n_prefill
        if now - self._told_at >= TELL_S or not self._scheduler.running:
            self._told_at = now
            self._tell()

    def _tell(self) -> None:
        scheduler, pool = self._scheduler, self._scheduler.kv.pool
        self.metrics.steps(
            Steps(
                running=len(scheduler.running),
                waiting=len(scheduler.waiting),
                kv_usage=pool.n_in_use / pool.n_usable,
                kv_cached=pool.n_cached / pool.n_usable,
                kv_waste=self._waste(),
                n_tokens=self._step_tokens,
                n_prompt=self._n_prompt,
                ttft_s=self._ttft_s,
                gaps_s=self._gaps_s,
                parts=self._parts,
            )
        )
        self._ttft_s, self._gaps_s, self._step_tokens = [], [], []
        self._n_prompt, self._parts = 0, StepParts(0.0, 0.0, 0.0, 0.0)
        for kind, n in pool.evicted.items():
            if n > self._evicted.get(kind, 0):
                self.metrics.evicted(kind, n - self._evicted.get(kind, 0))
                self._evicted[kind] = n

    def idle(self) -> None:
        """After a turn that computed nothing: whoever was inside may have left since the last step."""
        self._tell()

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
