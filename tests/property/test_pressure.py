"""Long made-up loads on pools that are much too small: preemption, displacement, aborts and shared prefixes all the time."""

from __future__ import annotations

import random

import pytest

from camshaft.engine.job import Job
from camshaft.types import Capacity, Failed, Finished, KVGroup, SamplingParams
from engine_rig import Rig, alone, sink_of

GROUPS = {"full": (KVGroup(1),), "window": (KVGroup(1, window=10),), "mixed": (KVGroup(1), KVGroup(1, window=9))}


def load(seed: int, groups: str, n_requests: int) -> tuple[Rig, list[tuple[Job, Capacity]], int]:
    dice = random.Random(seed)
    capacity = Capacity(260, 72, 4, dice.randint(22, 34) * len(GROUPS[groups]), GROUPS[groups], dice.randint(2, 6), dice.choice([2, 8, 24]))
    rig = Rig(capacity, age_s=dice.choice([0.05, 2.0]), watermark=dice.choice([0.0, 0.05]), evict=dice.choice(["lru", "retention"]))
    jobs: list[tuple[Job, Capacity]] = []
    n_preempted = 0
    aborted: set[int] = set()
    while len(jobs) < n_requests:
        if dice.random() < 0.5:
            base = dice.randrange(3)
            prompt = [(base * 50 + i) % 250 for i in range(dice.randint(1, 30))] + [
                dice.randrange(250) for _ in range(dice.choice([0, 0, 3]))
            ]
            params = SamplingParams(
                temperature=dice.choice([0.0, 1.0]), seed=7, max_tokens=dice.randint(1, 40), ignore_eos=dice.random() < 0.5
            )
            n = dice.choice([1, 1, 1, 4])
            call = f"c{len(jobs)}" if n > 1 else ""
            for choice in range(n):
                job = rig.submit(prompt, sampling=params, priority=dice.randint(0, 2), choice=choice, siblings=call)
                jobs.append((job, capacity))
        if jobs and dice.random() < 0.08:
            i = dice.randrange(len(jobs))
            if sink_of(jobs[i][0]).terminal is None:
                aborted.add(i)
            rig.loop.abort(jobs[i][0])
        rig.loop.turn()
        rig.check()
    rig.run()
    kept = [pair for i, pair in enumerate(jobs) if i not in aborted]
    n_preempted = sum(job.seq.n_preempted for job, _ in jobs)
    return rig, kept, n_preempted


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("seed", range(4))
def test_output_is_that_of_the_request_alone(groups: str, seed: int) -> None:
    rig, jobs, _ = load(seed, groups, 40)
    for job, capacity in jobs:
        got, wanted = sink_of(job), alone(job.seq.ids[: job.seq.n_prompt], job.request.sampling, capacity, job.request.choice)
        assert isinstance(got.terminal, Finished), got.terminal
        assert got.ids == wanted.ids
        assert got.text == wanted.text
    assert rig.loop.kv.pool.n_in_use == 0


def test_the_load_really_is_pressure() -> None:
    """Guards the tests above against becoming harmless."""
    loads = [load(seed, "full", 40) for seed in range(4)]
    assert sum(n for _, _, n in loads) >= 20
    assert sum(rig.loop.kv.n_hit for rig, _, _ in loads) > 100
    assert sum(sum(rig.loop.kv.pool.evicted.values()) for rig, _, _ in loads) > 50
    assert not any(isinstance(sink_of(job).terminal, Failed) for _, jobs, _ in loads for job, _ in jobs)


@pytest.mark.slow
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("seed", range(100, 200))
def test_output_is_that_of_the_request_alone_at_length(groups: str, seed: int) -> None:
    test_output_is_that_of_the_request_alone(groups, seed)
