"""EngineReplica: the real scheduler over the real KV manager, with a step time instead of a runner.

Prompts are made up, one of its own for each task, so nothing is shared between them; a preempted sequence finds its own blocks again.
"""

from __future__ import annotations

from camshaft.bench.virtual import Listener, Shape, Task, Timeline
from camshaft.config import EngineConfig
from camshaft.kv.evict import make_evictor
from camshaft.kv.manager import KVManager
from camshaft.sched.plan import Planned
from camshaft.sched.scheduler import Scheduler
from camshaft.sched.sequence import Sequence
from camshaft.types import Capacity, KVGroup, Request, SamplingParams, StepPlan, TokenPrompt

_CONTEXT = 1 << 20  # tokens: long enough for any task
_AMPLE = 1 << 16  # blocks where the shape names no bound
_FOREVER_S = 1e9


class EngineReplica:
    """One step after another while there is work, as the engine's loop takes them."""

    def __init__(self, timeline: Timeline, shape: Shape, listener: Listener, age_s: float = 10.0) -> None:
        self.shape = shape
        self.n_computed = 0
        self.n_preempted = 0
        config = EngineConfig(
            max_num_seqs=shape.max_num_seqs,
            max_num_batched_tokens=shape.max_num_batched_tokens,
            max_queued_requests=1_000_000,
            max_queued_tokens=1_000_000_000,
            age_s=age_s,
            queue_timeout_s=_FOREVER_S,
            default_deadline_s=_FOREVER_S,
        )
        n_blocks = shape.n_blocks or _AMPLE
        capacity = Capacity(1 << 62, _CONTEXT, shape.block_size, n_blocks, (KVGroup(1),), shape.max_num_seqs, shape.max_num_batched_tokens)
        self.scheduler = Scheduler(config, capacity, KVManager(capacity, make_evictor("lru")))
        self._timeline = timeline
        self._listener = listener
        self._tasks: dict[int, tuple[Task, Sequence]] = {}  # by the sequence's key
        self._n = 0
        self._stepping = False

    def submit(self, task: Task) -> None:
        self._n += 1
        ids = tuple(range(self._n << 24, (self._n << 24) + task.n_prompt))
        request = Request(
            id=str(task.key),
            prompt=TokenPrompt(()),
            sampling=SamplingParams(max_tokens=task.n_output),
            priority=task.rank,
            tenant=task.tenant,
        )
        seq = Sequence(self._n, request, ids, self._timeline.now)
        self.scheduler.submit(seq, self._timeline.now)
        self._tasks[seq.key] = (task, seq)
        if not self._stepping:
            self._stepping = True
            self._timeline.after(0.0, self._begin)

    def cancel(self, task: Task) -> None:
        for key, (known, seq) in list(self._tasks.items()):
            if known is task:
                self.scheduler.remove(seq, self._timeline.now)
                del self._tasks[key]

    def _begin(self) -> None:
        planned = self.scheduler.plan(self._timeline.now)
        self.n_preempted += len(planned.preempted)
        for seq in planned.opened:
            if seq.n_preempted == 0 and seq.key in self._tasks:
                self._listener.started(self._tasks[seq.key][0], seq.n_cached or 0)
        if not planned.seqs:
            # A plan that only preempted has its next one at once; with nothing to do the next submission starts it again.
            self._stepping = bool(planned.preempted)
            if self._stepping:
                self._timeline.after(0.0, self._begin)
            return
        self.n_computed += planned.n_prefill
        step_s = self.shape.step_s + self.shape.prefill_s * planned.n_prefill + self.shape.decode_s * planned.n_decode
        self.scheduler.pace.observe(planned.n_prefill, planned.n_decode, step_s)
        self._timeline.after(step_s, lambda: self._end(planned))

    def _end(self, planned: Planned) -> None:
        now = self._timeline.now
        live = [(seq, row) for seq, row in zip(planned.seqs, planned.plan.rows, strict=True) if seq.key in self._tasks]
        if len(live) < len(planned.seqs):  # somebody was cancelled while the step ran
            planned = planned._replace(seqs=[seq for seq, _ in live], plan=StepPlan(tuple(row for _, row in live)))
        self.scheduler.accept(planned, now)
        for seq, row in live:
            if row.n_sample and seq.key in self._tasks:  # a listener may have cancelled it just now
                self._sampled(seq, now)
        self._begin()

    def _sampled(self, seq: Sequence, now: float) -> None:
        task = self._tasks[seq.key][0]
        done = seq.n_output + 1 == task.n_output
        if done:
            self.scheduler.remove(seq, now)
            del self._tasks[seq.key]
        else:
            seq.ids.append(0)
        self._listener.produced(task, 1)
        if done:
            self._listener.ended(task)
