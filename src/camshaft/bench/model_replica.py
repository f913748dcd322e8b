"""ModelReplica: a replica as a few numbers. Continuous batching with chunked prefill, first come first served within a rank, no preemption.

Its prefix cache knows blocks by name only, as recorded traces give them, and evicts the least recently used.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict

from camshaft.bench.virtual import Listener, Shape, Task, Timeline


class BlockCache:
    """Named blocks, held by running requests or free to be evicted, and unnamed ones. `n_blocks` bounds all together; 0: no bound."""

    def __init__(self, n_blocks: int = 0) -> None:
        self._n_blocks = n_blocks or 1 << 60
        self._held: dict[int, int] = {}  # name -> how many hold it
        self._free: OrderedDict[int, None] = OrderedDict()  # least recently used first
        self._n_unnamed = 0

    def match(self, blocks: tuple[int, ...]) -> int:
        """How many of the first blocks are here."""
        n = 0
        for name in blocks:
            if name not in self._held and name not in self._free:
                break
            n += 1
        return n

    def hold(self, blocks: tuple[int, ...], n_unnamed: int) -> int | None:
        """Hold all these; how many of the first were here. None, and nothing changed, where they do not fit."""
        n_hit = self.match(blocks)
        n_new = sum(1 for name in blocks if name not in self._held)  # free ones become held
        if len(self._held) + self._n_unnamed + n_new + n_unnamed > self._n_blocks:
            return None
        for name in blocks:
            self._held[name] = self._held.get(name, 0) + 1
            self._free.pop(name, None)
        self._n_unnamed += n_unnamed
        while len(self._held) + len(self._free) + self._n_unnamed > self._n_blocks:
            self._free.popitem(last=False)
        return n_hit

    def release(self, blocks: tuple[int, ...], n_unnamed: int) -> None:
        """Let go, the last blocks first, so that the ends of prompts are evicted before their beginnings."""
        self._n_unnamed -= n_unnamed
        for name in reversed(blocks):
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
                self._free[name] = None


class _Run:
    __slots__ = ("chunk", "n_left", "n_todo", "n_unnamed", "task")

    def __init__(self, task: Task, n_todo: int, n_unnamed: int) -> None:
        self.task = task
        self.n_todo = n_todo  # prompt tokens to compute
        self.n_left = task.n_output
        self.n_unnamed = n_unnamed
        self.chunk = 0  # prompt tokens of the step that runs


class ModelReplica:
    """Steps one after another while there is work. Pure decode steps are taken in one stride until something comes in between."""

    def __init__(self, timeline: Timeline, shape: Shape, listener: Listener) -> None:
        self.shape = shape
        self.n_computed = 0
        self._timeline = timeline
        self._listener = listener
        self._cache = BlockCache(shape.n_blocks)
        self._waiting: list[tuple[int, int, Task]] = []
        self._running: list[_Run] = []
        self._gone: set[int] = set()  # cancelled while waiting
        self._n = 0
        self._turn = 0  # of the step that runs; an event of another turn is void
        self._stride: tuple[float, float, int] | None = None  # began, seconds a step, steps
        self._telling = False  # the listener is being told, and may submit meanwhile

    def submit(self, task: Task) -> None:
        self._n += 1
        self._gone.discard(task.key)
        heapq.heappush(self._waiting, (task.rank, self._n, task))
        self._interrupt()

    def cancel(self, task: Task) -> None:
        for run in self._running:
            if run.task.key == task.key:
                self._running.remove(run)
                self._cache.release(task.blocks, run.n_unnamed)
                return
        if any(waiting.key == task.key for _, _, waiting in self._waiting):
            self._gone.add(task.key)

    def match(self, blocks: tuple[int, ...]) -> int:
        """How many of the first blocks are cached here."""
        return self._cache.match(blocks)

    # ------------------------------------------------------------------------------------------------------------ steps

    def _interrupt(self) -> None:
        """Something came in: a stride ends with the step that runs now."""
        if self._telling:
            return
        if self._stride is None:
            self._begin()
            return
        began, step_s, n = self._stride
        n_done = math.floor((self._timeline.now - began) / step_s) + 1
        if n_done < n:
            self._schedule(began, step_s, n_done)

    def _schedule(self, began: float, step_s: float, n: int) -> None:
        self._turn += 1
        self._stride = (began, step_s, n)
        turn = self._turn
        self._timeline.at(began + n * step_s, lambda: self._end(turn, n))

    def _begin(self) -> None:
        self._telling = True
        self._admit()
        self._telling = False
        if not self._running:
            return
        n_decode = min(sum(1 for run in self._running if not run.n_todo), self.shape.max_num_batched_tokens)
        budget = self.shape.max_num_batched_tokens - n_decode
        n_prefill = 0
        for run in self._running:
            run.chunk = min(run.n_todo, budget - n_prefill)
            n_prefill += run.chunk
        step_s = self.shape.step_s + self.shape.prefill_s * n_prefill + self.shape.decode_s * n_decode
        n = 1 if n_prefill else min(run.n_left for run in self._running)
        if self._waiting and len(self._running) < self.shape.max_num_seqs:
            n = 1  # one that does not fit yet
        self.n_computed += n_prefill
        self._schedule(self._timeline.now, step_s, n)

    def _admit(self) -> None:
        size = self.shape.block_size
        while self._waiting and len(self._running) < self.shape.max_num_seqs:
            task = self._waiting[0][2]
            if task.key in self._gone:
                self._gone.discard(task.key)
                heapq.heappop(self._waiting)
                continue
            n_unnamed = max(0, -(-(task.n_prompt + task.n_output) // size) - len(task.blocks))
            n_hit = self._cache.hold(task.blocks, n_unnamed)
            if n_hit is None:
                if not self._running:
                    raise ValueError(f"task {task.key} of {task.n_prompt + task.n_output} tokens can never fit into {self.shape}")
                return
            heapq.heappop(self._waiting)
            n_cached = min(n_hit * size, task.n_prompt - 1)  # the last one's logits are needed
            self._running.append(_Run(task, task.n_prompt - n_cached, n_unnamed))
            self._listener.started(task, n_cached)

    def _end(self, turn: int, n: int) -> None:
        if turn != self._turn:
            return
        self._stride, self._telling = None, True
        for run in list(self._running):
            produced = 0 if run.n_todo else n
            run.n_todo -= run.chunk
            if run.chunk and not run.n_todo:
                produced = 1  # the step that ends the prompt samples
            run.chunk = 0
            if produced:
                run.n_left -= produced
                self._listener.produced(run.task, produced)
            if not run.n_left:
                self._running.remove(run)
                self._cache.release(run.task.blocks, run.n_unnamed)
                self._listener.ended(run.task)
        self._begin()
