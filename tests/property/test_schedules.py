"""Whatever is submitted, aborted and stepped, in whatever order: the engine keeps its promises."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camshaft.engine.job import Job
from camshaft.types import Capacity, Delta, Failed, Finished, KVGroup, SamplingParams, Scored
from engine_rig import Rig, alone, sink_of

FULL = (KVGroup(1),)
WINDOWED = (KVGroup(1, window=6),)
MIXED = (KVGroup(1), KVGroup(1, window=7))


@dataclass(frozen=True)
class Ask:
    """One request of a made-up schedule. Prompts are cut from few long texts, so that prefixes are shared."""

    text: int
    length: int
    params: SamplingParams
    priority: int
    tenant: str
    n: int
    extra: tuple[int, ...] = field(default=())

    @property
    def prompt(self) -> tuple[int, ...]:
        return tuple((self.text * 31 + i * 7) % 250 for i in range(self.length)) + self.extra


def asks() -> st.SearchStrategy[Ask]:
    params = st.builds(
        SamplingParams,
        temperature=st.sampled_from([0.0, 0.8]),
        seed=st.integers(0, 3),
        max_tokens=st.integers(0, 24),
        ignore_eos=st.booleans(),
        logprobs=st.sampled_from([None, None, 0, 2]),
        prompt_logprobs=st.sampled_from([None, None, None, 1]),
    )
    return st.builds(
        Ask,
        text=st.integers(0, 2),
        length=st.integers(1, 40),
        params=params,
        priority=st.integers(0, 2),
        tenant=st.sampled_from(["", "a"]),
        n=st.sampled_from([1, 1, 1, 3]),
        extra=st.sampled_from([(), (), (1,), (2, 3)]),
    )


actions = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), asks()),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 6)),
        st.tuples(st.just("wait"), st.floats(0, 3)),
    ),
    min_size=1,
    max_size=40,
)

machines = st.builds(
    Capacity,
    vocab_size=st.just(260),
    max_model_len=st.just(80),
    block_size=st.sampled_from([2, 4, 8]),
    n_blocks=st.integers(12, 60),
    groups=st.sampled_from([FULL, FULL, WINDOWED, MIXED]),
    max_slots=st.integers(1, 6),
    max_tokens=st.sampled_from([1, 3, 16, 64]),
)

configs = st.fixed_dictionaries(
    {
        "policy": st.sampled_from(["fcfs", "priority"]),
        "prefix_caching": st.sampled_from([True, True, False]),
        "evict": st.sampled_from(["lru", "retention"]),
        "watermark": st.sampled_from([0.0, 0.1]),
        "age_s": st.sampled_from([0.05, 5.0]),
        "flush_tokens": st.sampled_from([0, 3]),
    }
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(machines, configs, actions)
def test_every_request_ends_once_and_as_it_would_alone(capacity: Capacity, config: dict[str, object], script: list) -> None:  # type: ignore[type-arg]
    rig = Rig(capacity, **config)
    jobs: list[tuple[Ask, int, Job]] = []
    aborted: set[int] = set()
    for action, what in script:
        if action == "submit":
            for choice in range(what.n):
                siblings = f"s{len(jobs) - choice}" if what.n > 1 else ""
                job = rig.submit(
                    what.prompt, sampling=what.params, priority=what.priority, tenant=what.tenant, choice=choice, siblings=siblings
                )
                jobs.append((what, choice, job))
        elif action == "abort" and what < len(jobs):
            if sink_of(jobs[what][2]).terminal is None:
                aborted.add(what)
            rig.loop.abort(jobs[what][2])
            rig.loop.abort(jobs[what][2])
        elif action == "step":
            for _ in range(what):
                rig.loop.turn()
                rig.check()
        elif action == "wait":
            rig.clock.advance(what)
        rig.check()
    rig.run()
    for i, (ask, choice, job) in enumerate(jobs):
        judge(ask, choice, job, capacity, aborted=i in aborted)
    assert rig.loop.kv.pool.n_in_use == 0
    assert not rig.runner._slots
    assert len(rig.scheduler._timers) <= 64


def judge(ask: Ask, choice: int, job: Job, capacity: Capacity, *, aborted: bool) -> None:
    sink = sink_of(job)
    terminals = [e for e in sink.events if isinstance(e, (Finished, Failed))]
    if aborted:
        assert not terminals
        return
    assert len(terminals) == 1
    assert sink.terminal is terminals[0]
    wanted = alone(ask.prompt, ask.params, capacity, choice)
    got, same = terminals[0], wanted.terminal
    if isinstance(got, Failed):
        assert got.error.code in ("context_length_exceeded", "invalid_request_error"), got.error
        assert isinstance(same, Failed), f"failed with {got.error.message}, alone it would not"
        assert got.error == same.error
        return
    assert isinstance(same, Finished)
    assert (got.reason, got.matched, got.usage.n_output) == (same.reason, same.matched, same.usage.n_output)
    assert sink.ids == wanted.ids
    assert sink.text == wanted.text
    assert logprobs_of(sink) == logprobs_of(wanted)


def logprobs_of(sink) -> list[object]:  # type: ignore[no-untyped-def]
    return [p for e in sink.events if isinstance(e, (Delta, Scored)) for p in e.logprobs]


def test_what_is_over_is_forgotten() -> None:
    rig = Rig()
    job = rig.submit(range(20))
    rig.run()
    seen = weakref.ref(job.seq.table) if job.seq.table is not None else None
    keys = job.seq.key
    del job
    gc.collect()
    assert seen is None
    assert keys not in rig.scheduler.live
    assert not [o for o in gc.get_objects() if isinstance(o, Job)]


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_nobody_starves_in_a_stream_of_better_requests(policy: str) -> None:
    """A batch request ends though realtime ones keep coming, because waiting counts."""
    rig = Rig(Capacity(260, 64, 4, 17, FULL, 2, 16), policy=policy, age_s=0.5)
    batch = rig.submit(range(30), priority=3)
    for i in range(400):
        rig.submit([i % 250, 1, 2, 3, 4, 5], priority=0)
        rig.loop.turn()
        rig.loop.turn()
        rig.check()
        if sink_of(batch).terminal is not None:
            break
    assert isinstance(sink_of(batch).terminal, Finished)
