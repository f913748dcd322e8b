"""Virtual time: a clock that jumps from event to event, and what a replica in it is asked and tells.

The policies under test are the real ones (line, limits, router, scheduler); only time and the replicas' arithmetic are pretended.

    timeline = Timeline()
    replica = ModelReplica(timeline, Shape(...), listener)      # or EngineReplica: the real scheduler and KV manager
    timeline.at(arrival_s, lambda: replica.submit(Task(key, n_prompt, n_output)))
    timeline.run()
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple, Protocol

from camshaft.clock import ManualClock


class Timeline:
    """Events in order of time; those of one moment in the order in which they were asked for."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    @property
    def now(self) -> float:
        return self.clock.now()

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Do it then; at once, after what is due already, where that is past."""
        self._n += 1
        heapq.heappush(self._heap, (when, self._n, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, until: float = float("inf")) -> None:
        """All events up to `until`, those that they bring about included."""
        while self._heap and self._heap[0][0] <= until:
            when, _, action = heapq.heappop(self._heap)
            self.clock.advance(max(0.0, when - self.now))
            action()


class Shape(NamedTuple):
    """A replica's size and speed. A step takes step_s + prefill_s * (prompt tokens) + decode_s * (sequences that decode)."""

    max_num_seqs: int = 32
    max_num_batched_tokens: int = 512
    step_s: float = 0.01
    prefill_s: float = 0.0004  # a prompt token
    decode_s: float = 0.001  # a token of a sequence that decodes
    block_size: int = 32  # tokens
    n_blocks: int = 0  # of the KV cache; 0: without bound

    def full_step_s(self) -> float:
        """A step with the whole token budget in prompts and every other sequence decoding."""
        n_decode = self.max_num_seqs - 1
        return self.step_s + self.prefill_s * max(0, self.max_num_batched_tokens - n_decode) + self.decode_s * n_decode


class Task:
    """One request inside a replica: so many tokens in and out. `blocks` names the prompt's full blocks, equal for equal prefixes."""

    __slots__ = ("blocks", "key", "n_output", "n_prompt", "rank", "tenant")

    def __init__(self, key: int, n_prompt: int, n_output: int, *, rank: int = 0, tenant: str = "", blocks: tuple[int, ...] = ()) -> None:
        self.key = key
        self.n_prompt = n_prompt
        self.n_output = n_output  # at least 1
        self.rank = rank
        self.tenant = tenant
        self.blocks = blocks


class Listener(Protocol):
    """Whoever sent the task hears of it, in this order: started, produced (once or more), ended."""

    def started(self, task: Task, n_cached: int) -> None: ...

    def produced(self, task: Task, n: int) -> None:
        """So many more output tokens. The first call is the time to the first token."""
        ...

    def ended(self, task: Task) -> None: ...


class VirtualReplica(Protocol):
    """Both kinds of replica have this shape."""

    def submit(self, task: Task) -> None: ...

    def cancel(self, task: Task) -> None:
        """Forget it wherever it is; its listener hears no more. Idempotent."""
        ...

    @property
    def n_computed(self) -> int:
        """Prompt tokens computed so far."""
        ...
