"""Virtual time: both replicas compute what they were asked, once, in the time that the shape says."""

from __future__ import annotations

import random

import pytest

from camshaft.bench.engine_replica import EngineReplica
from camshaft.bench.model_replica import BlockCache, ModelReplica
from camshaft.bench.virtual import Shape, Task, Timeline

SHAPE = Shape(max_num_seqs=4, max_num_batched_tokens=64, step_s=0.01, prefill_s=0.001, decode_s=0.002, block_size=16)


class Diary:
    """Listens, and keeps what it heard with its time."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.started_at: dict[int, float] = {}
        self.cached: dict[int, int] = {}
        self.produced_at: dict[int, list[tuple[float, int]]] = {}
        self.ended_at: dict[int, float] = {}

    def started(self, task: Task, n_cached: int) -> None:
        assert task.key not in self.started_at
        self.started_at[task.key] = self._timeline.now
        self.cached[task.key] = n_cached

    def produced(self, task: Task, n: int) -> None:
        assert task.key not in self.ended_at
        self.produced_at.setdefault(task.key, []).append((self._timeline.now, n))

    def ended(self, task: Task) -> None:
        assert task.key not in self.ended_at
        self.ended_at[task.key] = self._timeline.now

    def n_output(self, key: int) -> int:
        return sum(n for _, n in self.produced_at[key])


def test_events_come_in_order_of_time_and_then_of_asking() -> None:
    timeline, seen = Timeline(), []
    timeline.at(2.0, lambda: seen.append("c"))
    timeline.at(1.0, lambda: seen.append("a"))
    timeline.at(1.0, lambda: (seen.append("b"), timeline.after(0.5, lambda: seen.append("between"))))
    timeline.run(until=1.9)
    assert (seen, timeline.now) == (["a", "b", "between"], 1.5)
    timeline.run()
    assert seen[-1] == "c"


@pytest.mark.parametrize("kind", [ModelReplica, EngineReplica])
def test_one_request_takes_its_prompt_steps_and_its_decodes(kind: type[ModelReplica] | type[EngineReplica]) -> None:
    timeline = Timeline()
    diary = Diary(timeline)
    replica = kind(timeline, SHAPE, diary)
    timeline.at(1.0, lambda: replica.submit(Task(7, n_prompt=100, n_output=5)))
    timeline.run()
    first_at = 1.0 + 2 * 0.01 + 100 * 0.001  # 64 tokens, then 36
    assert diary.produced_at[7][0] == (pytest.approx(first_at), 1)
    assert diary.ended_at[7] == pytest.approx(first_at + 4 * 0.012)
    assert (diary.n_output(7), replica.n_computed) == (5, 100)


@pytest.mark.parametrize("kind", [ModelReplica, EngineReplica])
def test_every_task_of_many_ends_once_with_all_its_tokens(kind: type[ModelReplica] | type[EngineReplica]) -> None:
    dice, timeline = random.Random(3), Timeline()
    diary = Diary(timeline)
    replica = kind(timeline, SHAPE._replace(n_blocks=40), diary)
    tasks = [Task(key, dice.randrange(1, 200), dice.randrange(1, 60), rank=dice.randrange(2)) for key in range(60)]
    cancelled = set()
    for task in tasks:
        timeline.at(dice.uniform(0, 20), lambda task=task: replica.submit(task))
        if task.key % 7 == 0:
            cancelled.add(task.key)
            timeline.at(20 + dice.uniform(0, 3), lambda task=task: replica.cancel(task))
    timeline.run()
    for task in tasks:
        if task.key not in cancelled:
            assert diary.n_output(task.key) == task.n_output
            assert task.key in diary.ended_at


def test_a_stride_of_decodes_ends_with_the_step_in_which_somebody_comes() -> None:
    timeline = Timeline()
    diary = Diary(timeline)
    replica = ModelReplica(timeline, SHAPE, diary)
    replica.submit(Task(1, n_prompt=10, n_output=1000))
    timeline.at(0.02 + 10.5 * 0.012, lambda: replica.submit(Task(2, n_prompt=10, n_output=1)))
    timeline.run()
    assert diary.produced_at[1][1] == (pytest.approx(0.02 + 11 * 0.012), 11)
    assert diary.produced_at[2][0][0] == pytest.approx(0.02 + 11 * 0.012 + 0.01 + 0.01 + 0.002)
    assert diary.n_output(1) == 1000


def test_realtime_preempts_batch_inside_the_engine_replica() -> None:
    timeline = Timeline()
    diary = Diary(timeline)
    replica = EngineReplica(timeline, SHAPE, diary)
    for key in range(4):
        replica.submit(Task(key, 60, 500, rank=1))
    timeline.at(2.0, lambda: replica.submit(Task(9, 60, 3)))
    timeline.run()
    assert diary.produced_at[9][0][0] - 2.0 < 2 * SHAPE.full_step_s()
    assert replica.n_preempted == 1
    assert all(diary.n_output(key) == 500 for key in range(4))


def test_the_block_cache_holds_what_runs_and_evicts_the_least_recently_used() -> None:
    cache = BlockCache(6)
    assert cache.hold((1, 2, 3), 1) == 0
    assert cache.hold((1, 2, 4), 2) is None
    assert cache.hold((1, 2, 4), 1) == 2
    cache.release((1, 2, 3), 1)
    assert cache.match((1, 2, 3)) == 3
    assert cache.hold((8,), 1) == 0  # 3 goes: 1 and 2 are still held
    assert cache.match((1, 2, 3)) == 2
    cache.release((1, 2, 4), 1)
    cache.release((8,), 1)
    assert cache.hold((1, 2), 4) == 2
