"""EngineLoop: drain, expire, admit, plan, mask, step, accept, emit. The one place where decisions meet arithmetic.

No thread of its own: whoever calls `turn` is the engine thread, and the only one that may.
"""

from __future__ import annotations

import logging
from time import perf_counter
from typing import NamedTuple

from camshaft.clock import SystemClock
from camshaft.config import EngineConfig
from camshaft.engine.job import Job
from camshaft.engine.masks import Masks, catch_up
from camshaft.engine.output import Ending, token_logprob
from camshaft.engine.report import Report
from camshaft.errors import BadRequest, CamshaftError, EngineFault
from camshaft.kv.evict import make_evictor
from camshaft.kv.manager import KVManager
from camshaft.observe.flight import FlightRecorder
from camshaft.observe.metrics import EngineMetrics, StepParts
from camshaft.sched.plan import Planned
from camshaft.sched.scheduler import Scheduler
from camshaft.sched.sequence import Sequence
from camshaft.types import (
    Clock,
    Event,
    Failed,
    Finished,
    Mask,
    RawLogprob,
    Row,
    RowResult,
    Runner,
    Scored,
    Started,
    StepResult,
    TokenLogprob,
    Usage,
)

log = logging.getLogger(__name__)


class Parts(NamedTuple):
    """What an engine is assembled from."""

    runner: Runner
    config: EngineConfig = EngineConfig()
    clock: Clock = SystemClock()
    metrics: EngineMetrics | None = None


class EngineLoop:
    """Owner of every sequence, of the runner's slots and of the KV books."""

    def __init__(self, parts: Parts) -> None:
        capacity = parts.runner.capacity()
        config = parts.config
        self.clock = parts.clock
        self.runner = parts.runner
        self.kv = KVManager(capacity, make_evictor(config.evict), prefix_caching=config.prefix_caching)
        self.scheduler = Scheduler(config, capacity, self.kv)
        self.jobs: dict[int, Job] = {}
        self.report = Report(parts.metrics or EngineMetrics(), self.scheduler)
        self.flights = FlightRecorder()
        self._masks = Masks(capacity.vocab_size)
        self._touched: dict[int, Job] = {}  # jobs with events that are not handed over yet
        self._unread: list[Job] = []  # jobs whose reader is gone
        self._held: dict[int, Job] = {}  # jobs whose output waits for its flush
        self._masked: set[int] = set()  # keys of jobs for which not every token may come next

    # ------------------------------------------------------------------------------------------------------- coming in

    def submit(self, job: Job) -> None:
        """Take a job. One that cannot be taken gets its error as its terminal event."""
        now = self.clock.now()
        try:
            ending = self._caught_up(job)
            if ending is None:
                self.scheduler.submit(job.seq, now)
        except CamshaftError as error:
            self.report.refused(error)
            self._put(job, Failed(error.info()))
            return
        if ending is not None:
            self._put_end(job, ending)
            return
        self.jobs[job.seq.key] = job
        if job.matcher is not None or job.output.min_tokens:
            self._masked.add(job.seq.key)

    def abort(self, job: Job) -> None:
        """The client left: free everything at once. Idempotent, at any point, also for a job that was never taken or is over."""
        if self.jobs.pop(job.seq.key, None) is not None:
            now = self.clock.now()
            self._held.pop(job.seq.key, None)
            self._touched.pop(job.seq.key, None)
            self._masked.discard(job.seq.key)
            self.report.ended(job, "cancelled", now)
            self.scheduler.remove(job.seq, now)
            self._release_slots()

    def end_all(self, error: CamshaftError) -> None:
        """End every job with this error."""
        for job in list(self.jobs.values()):
            self._fail(job, error)
        self.hand_over()

    def bury(self, error: CamshaftError) -> None:
        """The same after a bug of ours: the books may be wrong, so nothing is looked up in them or given back."""
        jobs, self.jobs = self.jobs, {}
        for job in jobs.values():
            job.sink.put(Failed(error.info()))
        for job in (self._touched | jobs).values():
            job.sink.send()

    # ---------------------------------------------------------------------------------------------------------- a turn

    def turn(self) -> bool:
        """One step. False where there was nothing to compute.

        What the step brought is handed over by the next turn, right before its own step or its sleep: a reader that is woken earlier
        finds Python's lock taken, and has cost two switches for nothing.
        """
        began = perf_counter()
        now = self.clock.now()
        self._drop_unread()
        timer = self.scheduler.next_timer()
        if timer is not None and timer <= now:
            for seq, error in self.scheduler.expire(now):
                self._fail(self.jobs[seq.key], error)
        planned = self.scheduler.plan(now)
        if planned.preempted:
            self.report.preempted(planned.preempted)
        if not planned.seqs:
            self.hand_over()
            self._drop_unread()
            self._switch_slots(planned)
            self.report.idle()
            return False
        if planned.opened:
            self._start(planned.opened, now)
        if self._held:
            self._flush_late(now + self.scheduler.pace.step_s(planned.n_prefill))
        self.hand_over()
        planned_at = perf_counter()
        result = self._compute(planned, now)
        computed_at = perf_counter()
        if result is not None:
            self._accept(planned, result)
            bind_s = max(0.0, computed_at - planned_at - result.step_s)
            parts = StepParts(planned_at - began, bind_s, result.step_s, perf_counter() - computed_at)
            self.report.step(planned, parts, now)
        return True

    def wake_at(self) -> float | None:
        """When the next turn may have something to do though nothing comes in."""
        return self.scheduler.next_timer()

    def hand_over(self) -> None:
        """Give the events of this step to those who wait for them, in one go. A job that nobody reads is let go once no step is planned."""
        touched = self._touched
        if not touched:
            return
        self._touched = {}
        self._unread += [job for job in touched.values() if not job.sink.send()]

    def _drop_unread(self) -> None:
        while self._unread:
            self.abort(self._unread.pop())

    def _start(self, opened: list[Sequence], now: float) -> None:
        for seq in opened:
            job = self.jobs[seq.key]
            if seq.n_preempted == 0:
                assert seq.n_cached is not None
                self._put(job, Started(seq.n_prompt, seq.n_cached, now - seq.arrived_at))
                self.report.admitted(seq, now)

    def _flush_late(self, until: float) -> None:
        """Send what would have waited too long when the coming step is over."""
        late = [job for job in self._held.values() if job.output.is_due(until)]
        if late:
            now = self.clock.now()
            for job in late:
                self._flush(job, now)

    def _switch_slots(self, planned: Planned) -> None:
        for slot in planned.released:
            self.runner.release(slot)
        for seq in planned.opened:
            request = seq.request
            self.runner.open(seq.slot, request.sampling, request.choice, seq.ids[: seq.n_prompt], seq.ids[seq.n_prompt :])

    def _compute(self, planned: Planned, now: float) -> StepResult | None:
        """The step itself. None: it failed, and its rows with it; the engine lives on."""
        waiting, available = len(self.scheduler.waiting), self.kv.pool.n_available
        try:
            if planned.opened or planned.released:
                self._switch_slots(planned)
            masks = self._fill_masks(planned) if self._masked else {}
            result = self.runner.step(planned.plan, masks)
        except Exception as error:
            self.flights.record(now, planned.plan, waiting, available, None)
            history = "\n".join(self.flights.lines())
            log.exception("a step failed; its %d requests end with an error; the last steps were:\n%s", len(planned.seqs), history)
            fault = EngineFault(f"the engine failed while computing this answer ({type(error).__name__}); the request may be tried again")
            for seq in planned.seqs:
                self._fail(self.jobs[seq.key], fault)
            return None
        self.flights.record(now, planned.plan, waiting, available, result.step_s)
        return result

    def _fill_masks(self, planned: Planned) -> dict[int, Mask]:
        masks: dict[int, Mask] = {}
        for seq, row in zip(planned.seqs, planned.plan.rows, strict=True):
            if row.n_sample:
                mask = self._masks.fill(self.jobs[seq.key])
                if mask is not None:
                    masks[row.slot] = mask
        return masks

    # ------------------------------------------------------------------------------------------------------- coming out

    def _accept(self, planned: Planned, result: StepResult) -> None:
        now = self.clock.now()
        scheduler = self.scheduler
        scheduler.accept(planned, now)
        scheduler.pace.observe(planned.n_prefill, planned.n_decode, result.step_s)
        for seq, row, got in zip(planned.seqs, planned.plan.rows, result.rows, strict=True):
            job = self.jobs[seq.key]
            if row.score:
                self._take_scores(job, row, got)
            if got.ids:
                self._take_token(job, got.ids[0], got.logprobs[0] if got.logprobs else None, now)
            elif seq.n_todo == 0:  # nothing was to be generated
                self._finish(job, Ending("length"), now)

    def _take_scores(self, job: Job, row: Row, got: RowResult) -> None:
        seq = job.seq
        del job.scores[row.start :]
        job.scores.extend(token_logprob(raw, job.output.codec) for raw in got.scores)
        seq.n_scored = 1 + len(job.scores)
        if seq.n_scored == seq.n_prompt:
            first = TokenLogprob(seq.ids[0], job.output.codec.token_bytes(seq.ids[0]), None)
            self._put(job, Scored((first, *job.scores)))

    def _take_token(self, job: Job, id: int, raw: RawLogprob | None, now: float) -> None:
        seq = job.seq
        if id < 0:
            self._fail(job, EngineFault("the model gave logits that are not finite for this request; other requests are unharmed"))
            return
        seq.ids.append(id)
        self.report.token(job, now)
        began = perf_counter()
        ending = job.output.push(id, raw, now)
        job.detok_s += perf_counter() - began
        if job.matcher is not None and ending is None:
            try:
                ending = Ending("stop") if job.matcher.push(id) else None
            except CamshaftError as error:
                self._fail(job, error)
                return
        if ending is None and len(seq.ids) >= seq.n_limit:
            ending = Ending("length")
        if ending is not None:
            self._finish(job, ending, now)
        elif job.output.is_due(now):
            self._flush(job, now)
        else:
            self._held[seq.key] = job

    def _flush(self, job: Job, now: float) -> None:
        self._held.pop(job.seq.key, None)
        since = job.output.held_since
        delta = job.output.flush()
        if delta is not None:
            job.flush_s = max(job.flush_s, now - (since or now))
            self._put(job, delta)

    def _finish(self, job: Job, ending: Ending, now: float) -> None:
        self._held.pop(job.seq.key, None)
        self._put_end(job, ending)
        self._forget(job, ending.reason, now)

    def _put_end(self, job: Job, ending: Ending) -> None:
        seq = job.seq
        delta = job.output.finish(ending)
        if delta is not None:
            self._put(job, delta)
        self._put(job, Finished(ending.reason, Usage(seq.n_prompt, seq.n_cached or 0, seq.n_output), ending.matched))

    def _fail(self, job: Job, error: CamshaftError) -> None:
        now = self.clock.now()
        self._flush(job, now)
        self._put(job, Failed(error.info()))
        self._forget(job, error.code, now)

    def _forget(self, job: Job, reason: str, now: float) -> None:
        self.report.ended(job, reason, now)
        del self.jobs[job.seq.key]
        self._masked.discard(job.seq.key)
        self.scheduler.remove(job.seq, now)
        self._release_slots()

    def _release_slots(self) -> None:
        for slot in self.scheduler.take_released():
            self.runner.release(slot)

    def _caught_up(self, job: Job) -> Ending | None:
        """Run the grammar over what was generated elsewhere. The ending of a stream of which only the terminal event was lost.

        Raises BadRequest where what is resumed cannot have come from this request.
        """
        resume, resumed = job.request.resume, job.output.resumed
        if resume is None:
            return None
        ending = resumed.ending
        if job.matcher is not None:
            # As it went there: a token that ends the output by itself is not shown to the grammar.
            ids = resume.ids if ending is None else resume.ids[:-1]
            complete = catch_up(job.matcher, ids)
            ending = Ending("stop") if complete and ending is None else ending
        if ending is None and resume.ids and len(job.seq.ids) == self.scheduler.limit(job.seq):
            ending = Ending("length")
        if ending is None and resumed.n_ahead:
            raise BadRequest(f"resume says that {resumed.n_ahead} more characters were sent than its ids give", param="resume")
        return ending

    def _put(self, job: Job, event: Event) -> None:
        job.sink.put(event)
        self._touched[job.seq.key] = job
