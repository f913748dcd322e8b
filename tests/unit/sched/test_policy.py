"""Order of the waiting, division of a step, and estimates of time."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from camshaft.sched.pace import LEAST_CHUNK, TARGET_STEP_S, Pace
from camshaft.sched.policy import Fcfs, Priority, least_valuable
from camshaft.sched.sequence import Sequence
from camshaft.sched.split import OLDEST_SHARE, split
from camshaft.sched.timers import Timers
from camshaft.sched.waiting import Waiting
from camshaft.types import Request, TokenPrompt


def seq(key: int, priority: int = 0, arrived_at: float = 0.0, rank: int = 0) -> Sequence:
    made = Sequence(key, Request(id="r", prompt=TokenPrompt((1,)), priority=priority), [1], arrived_at)
    made.rank = rank
    return made


def test_first_come_first_served_takes_no_notice_of_priority() -> None:
    line = Waiting(Fcfs())
    for s in (seq(1, 5, 1.0), seq(2, 0, 2.0), seq(3, 9, 0.5)):
        line.add(s)
    assert [s.key for s in line] == [3, 1, 2]


def test_priority_goes_first_and_age_makes_up_for_it() -> None:
    policy = Priority(age_s=10.0)
    line = Waiting(policy)
    for s in (seq(1, 1, 0.0), seq(2, 0, 9.0), seq(3, 0, 11.0)):
        line.add(s)
    assert [s.key for s in line] == [2, 1, 3], "ten seconds of waiting are worth one step"


@given(st.lists(st.tuples(st.integers(-3, 3), st.floats(0, 100)), min_size=2, max_size=6), st.floats(100, 1000))
def test_the_constant_key_orders_as_the_ageing_priorities_do(waiting: list[tuple[int, float]], now: float) -> None:
    policy = Priority(age_s=7.0)
    seqs = [seq(i, p, at) for i, (p, at) in enumerate(waiting)]
    aged = {s.key: s.request.priority - (now - s.arrived_at) / 7.0 for s in seqs}
    by_key = sorted(seqs, key=policy.order)
    assert all(aged[a.key] <= aged[b.key] + 1e-6 for a, b in pairwise(by_key))


def test_a_line_gives_up_members_from_anywhere() -> None:
    dice, line = random.Random(1), Waiting(Priority(5.0))
    members = [seq(i, dice.randint(0, 3), dice.choice([0.0, 1.0, 2.0])) for i in range(200)]
    for s in members:
        line.add(s)
    dice.shuffle(members)
    for i, s in enumerate(members):
        line.remove(s)
        assert len(line) == line.n_tokens == 199 - i


def test_realtime_displaces_batch_but_not_what_has_waited_long_enough() -> None:
    policy = Priority(age_s=10.0)
    fresh, aged = seq(1, 1), seq(2, 1)
    fresh.rank, aged.rank = policy.rank(fresh, 1.0), policy.rank(aged, 15.0)
    realtime = seq(3, 0, 20.0)
    assert policy.may_displace(realtime, fresh)
    assert not policy.may_displace(realtime, aged)
    assert not policy.may_displace(seq(4, 1), fresh), "equals do not drive each other out"
    assert not Fcfs().may_displace(realtime, fresh)


def test_the_victim_is_the_youngest_of_the_worst_rank() -> None:
    running = [seq(1, rank=0), seq(2, rank=1), seq(5, rank=1), seq(9, rank=0)]
    assert least_valuable(running).key == 5


def test_short_prompts_end_as_if_the_long_one_beside_them_were_short() -> None:
    def steps_until_short_are_done(long: int) -> int:
        todo, steps = [long, *[128] * 10], 0
        while any(todo[1:]):
            todo = [left - given for left, given in zip(todo, split(512, todo, [0] * 11), strict=True)]
            steps += 1
        return steps

    assert steps_until_short_are_done(2048) <= steps_until_short_are_done(128) + 1


def test_the_oldest_prompt_moves_in_every_step() -> None:
    given = split(64, [5000, *[40] * 50], [3, *[0] * 50])
    assert given[0] == 64 // OLDEST_SHARE


@given(st.lists(st.integers(1, 600), max_size=12), st.integers(0, 512))
def test_a_split_spends_the_budget_and_no_more(todo: list[int], budget: int) -> None:
    given_ = split(budget, todo, [0] * len(todo))
    assert all(0 <= g <= t for g, t in zip(given_, todo, strict=True))
    assert sum(given_) == min(budget, sum(todo))


def test_chunks_beside_decodes_keep_the_step_short() -> None:
    pace = Pace()
    for _ in range(20):
        pace.observe(0, 16, 0.02)
        pace.observe(100, 16, 0.02 + 100 * 0.001)
    assert 200 <= pace.chunk_cap() <= 350
    assert 1.25 * pace.step_s(pace.chunk_cap()) <= TARGET_STEP_S + 1e-9


def test_steps_that_take_longer_than_expected_shorten_the_chunks_and_calm_ones_lengthen_them() -> None:
    def mixed(pace: Pace, times: float, n: int) -> int:
        for _ in range(n):
            pace.observe(100, 16, times * pace.step_s(100))
        return pace.chunk_cap()

    pace = Pace()
    pace.observe(0, 16, 0.02)
    pace.observe(100, 16, 0.12)
    at_first, calm = pace.chunk_cap(), mixed(pace, 1.0, 60)
    assert calm > 1.3 * at_first
    assert mixed(pace, 1.6, 1) < 0.75 * calm
    assert mixed(pace, 50.0, 1) >= LEAST_CHUNK
    assert mixed(pace, 1.0, 200) >= LEAST_CHUNK


def test_a_slow_machine_still_moves_prompts() -> None:
    pace = Pace()
    for _ in range(10):
        pace.observe(16, 4, 5.0)
    assert pace.chunk_cap() == LEAST_CHUNK


def test_the_first_chunk_is_careful() -> None:
    assert Pace().chunk_cap() <= 64


def test_retry_after_follows_the_rate_at_which_the_line_drains() -> None:
    pace = Pace()
    for i in range(60):
        pace.drained(100, float(i))
    quick = pace.retry_after_s(1000, 60.0)
    assert 8 <= quick <= 13
    assert pace.retry_after_s(5000, 60.0) > 3 * quick
    assert pace.retry_after_s(10**9, 60.0) == 600.0
    assert pace.retry_after_s(1, 60.0) == 1.0


def test_timers_forget_what_is_over() -> None:
    timers = Timers()
    for key in range(1000):
        timers.add(1000.0 + key, key)
    timers.sweep({7}, 1)
    assert len(timers) == 1
    assert timers.next_at() == 1007.0
    assert timers.due(2000.0) == [7]
    assert timers.next_at() is None
