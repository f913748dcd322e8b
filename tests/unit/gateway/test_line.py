"""The line: order of classes and tenants, bounds, deadlines, promises."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest

from camshaft.errors import DeadlineExceeded, DeadlineUnmeetable, Overloaded, QueueFull, QueueTimeout, RequestTooLarge
from camshaft.gateway.line import Line, LineConfig
from gateway_doubles import serve, ticket


def fill(line: Line, n: int, *, tenant: str = "a", n_prompt: int = 10, rank: int = 0, now: float = 0.0) -> None:
    for _ in range(n):
        line.enter(ticket(tenant, n_prompt, rank=rank, at=now), now)


def flow(line: Line, seconds: int, per_s: int = 10, *, n_prompt: int = 10, start: float = 0.0) -> float:
    """A steady second after second in which so many of other tenants come and go; the time afterwards."""
    now = start
    for _ in range(seconds * per_s):
        line.enter(ticket("flow", n_prompt, at=now), now)
        now += 1.0 / per_s
        serve(line, 1, now, n_output=1)
    return now


# ---------------------------------------------------------------------------------------------------------------- order


def test_the_heads_of_several_tenants_come_first_and_then_their_next_ones() -> None:
    line = Line(LineConfig())
    made = [ticket(tenant) for tenant in ("a", "a", "a", "b", "c", "b")]
    for each in made:
        line.enter(each, 0.0)
    a1, a2, a3, b1, c1, b2 = made
    assert line.first(10, 0.0) == [a1, b1, c1, a2, b2, a3]
    assert line.first(2, 0.0) == [a1, b1]


def test_tenants_take_turns_by_tokens_not_by_requests() -> None:
    line = Line(LineConfig())
    fill(line, 40, tenant="long", n_prompt=300)
    fill(line, 400, tenant="short", n_prompt=30)
    served = serve(line, 110, 1.0)
    n_long = sum(1 for t in served if t.tenant == "long")
    assert n_long == 10


def test_what_the_cache_had_is_given_back_once() -> None:
    line = Line(LineConfig())
    fill(line, 2, n_prompt=100)
    first = line.first(1, 0.0)[0]
    line.take(first, 0.0)
    assert line.bands[0].fair.count("a") == 100
    line.cached(first, 80)
    line.cached(first, 80)
    assert line.bands[0].fair.count("a") == 20
    line.leave(first, 1.0)
    line.leave(first, 1.0)
    line.produced(first, 5)
    assert line.bands[0].fair.count("a") == 20
    line.check()


def test_what_no_replica_began_costs_nothing() -> None:
    line = Line(LineConfig())
    fill(line, 1, n_prompt=100)
    first = line.first(1, 0.0)[0]
    line.take(first, 0.0)
    line.leave(first, 1.0)
    assert line.bands[0].fair.count("a") == 0


def test_better_classes_go_first() -> None:
    line = Line(LineConfig())
    fill(line, 3, rank=1)
    fill(line, 3, rank=0)
    assert [t.rank for t in serve(line, 6, 0.1)] == [0, 0, 0, 1, 1, 1]


def test_a_class_that_waited_age_s_longer_goes_first_once() -> None:
    line = Line(LineConfig(age_s=10, least_share=0))
    fill(line, 3, rank=1)
    fill(line, 9, rank=0, now=10.5)
    assert [t.rank for t in serve(line, 5, 10.5)] == [1, 0, 0, 0, 0]


def test_steady_high_priority_leaves_the_low_one_its_share() -> None:
    """A low class behind a high one that never pauses starved, and a blocked head stopped its whole band (gateway failures, row 11)."""
    line = Line(LineConfig(least_share=0.1, age_s=1e4))
    fill(line, 200, rank=1, tenant="low")
    n_low = 0
    for step in range(1000):
        now = step * 0.01
        fill(line, 1, rank=0, tenant="high", now=now)
        n_low += sum(1 for t in serve(line, 1, now, n_output=100) if t.rank == 1)
    assert 80 <= n_low <= 100


def test_a_big_backlog_of_batch_does_not_age_past_realtime() -> None:
    """Its oldest requests are always very old; only the time since the class was served counts."""
    line = Line(LineConfig(age_s=10, least_share=0))
    fill(line, 1000, rank=1, tenant="batch")
    ranks = []
    for step in range(600):
        now = 100.0 + step * 0.1
        fill(line, 1, rank=0, tenant="user", now=now)
        ranks += [t.rank for t in serve(line, 1, now, n_output=1)]
    assert ranks.count(1) <= 60 / 10 + 1


def test_a_head_that_fits_nowhere_is_passed_for_a_while_and_then_waited_for_in_turns() -> None:
    """A blocked head request stopped all others of its band (gateway failures, row 11). Nor may it be passed for ever."""
    line = Line(LineConfig(patience_s=5))
    fill(line, 1, tenant="big", n_prompt=5000)
    fill(line, 50, tenant="small")
    fill(line, 5, tenant="batch", rank=1)
    big = line.first(1, 0.0)[0]
    assert line.first(3, 0.0)[1].tenant == "small"
    line.take(line.first(3, 0.0)[1], 0.0)
    assert len(line.first(8, 4.0)) == 8
    assert line.first(8, 6.0) == [big]
    assert line.next_timer() == 10.0  # then the others may go, though nothing else happens
    assert len(line.first(8, 11.0)) == 8
    fill(line, 1, tenant="user", rank=0, now=16.0)
    assert line.first(8, 16.0) == [big]


def test_a_better_class_passes_a_closed_door() -> None:
    line = Line(LineConfig(patience_s=5))
    fill(line, 1, tenant="big", n_prompt=5000, rank=1)
    fill(line, 5, tenant="small", rank=1)
    big = line.first(1, 0.0)[0]
    line.take(line.first(3, 0.0)[1], 0.0)
    fill(line, 2, tenant="user", now=6.0)
    assert [t.tenant for t in line.first(8, 6.0)] == ["user", "user", "big"]
    assert big in line.first(8, 6.0)


def test_all_classes_show_though_the_best_one_is_long() -> None:
    line = Line(LineConfig())
    fill(line, 100)
    fill(line, 5, rank=1)
    fill(line, 5, rank=2)
    assert [t.rank for t in line.first(16, 0.0)] == [0] * 14 + [1, 2]
    assert [t.rank for t in line.first(1, 0.0)] == [0]


def test_ten_thousand_of_one_tenant_come_and_go() -> None:
    """Quick only where nothing walks the queue: a quadratic one would run into the time limit of the test."""
    line = Line(LineConfig(max_requests=20_000, max_tokens=10**9, tenant_share=1))
    made = [ticket("batch", 100, rank=1) for _ in range(10_000)]
    for each in made:
        line.enter(each, 0.0)
    for each in made[::3]:
        line.leave(each, 0.0)
    assert len(serve(line, 10_000, 1.0)) == 10_000 - len(made[::3])
    line.check()
    assert len(line) == 0


# --------------------------------------------------------------------------------------------------------------- bounds


def test_a_tenants_share_of_the_line_is_bounded_with_429_and_the_whole_with_503() -> None:
    line = Line(LineConfig(max_requests=10, tenant_share=0.5))
    fill(line, 5, tenant="a")
    with pytest.raises(Overloaded) as refused:
        fill(line, 1, tenant="a")
    assert (refused.value.status, refused.value.retry_after_s) == (429, 1.0)
    fill(line, 5, tenant="b")
    with pytest.raises(QueueFull) as full:
        fill(line, 1, tenant="c")
    assert full.value.status == 503
    assert len(line) == 10
    line.check()


def test_the_line_is_bounded_in_tokens_too() -> None:
    line = Line(LineConfig(max_tokens=1000, tenant_share=0.5))
    fill(line, 5, tenant="a", n_prompt=100)
    with pytest.raises(Overloaded):
        fill(line, 1, tenant="a", n_prompt=100)
    fill(line, 5, tenant="b", n_prompt=100)
    with pytest.raises(QueueFull):
        fill(line, 1, tenant="c", n_prompt=100)


def test_what_can_never_fit_is_refused_at_once_for_good() -> None:
    """A request larger than its bucket waited for ever (gateway failures, row 9)."""
    with pytest.raises(RequestTooLarge) as refused:
        fill(Line(LineConfig(max_tokens=1000)), 1, n_prompt=1001)
    assert (refused.value.status, refused.value.retry_after_s) == (413, None)


def test_a_tenants_only_request_may_exceed_its_share() -> None:
    line = Line(LineConfig(max_tokens=1000, tenant_share=0.1))
    fill(line, 1, n_prompt=900)
    assert len(line) == 1


# ------------------------------------------------------------------------------------------------------------ deadlines


def test_what_cannot_meet_its_deadline_at_the_measured_rate_is_refused_at_once() -> None:
    line = Line(LineConfig())
    now = flow(line, 100)
    fill(line, 500, tenant="flow", now=now)  # 50 s of work
    late = ticket("flow", at=now, deadline_s=20)
    with pytest.raises(DeadlineUnmeetable) as refused:
        line.enter(late, now)
    assert (refused.value.status, refused.value.code) == (503, "deadline_unmeetable")
    assert refused.value.retry_after_s == pytest.approx(0.8 * 50 - 20, rel=0.1)
    line.enter(ticket("flow", at=now, deadline_s=60), now)
    line.enter(ticket("other", at=now, deadline_s=2), now)  # by its fair share it is nearly first
    assert len(line) == 502


def test_no_deadline_is_refused_on_a_guess() -> None:
    line = Line(LineConfig())
    fill(line, 1000)
    line.enter(ticket(deadline_s=0.5), 0.0)
    serve(line, 3, 0.1)
    line.enter(ticket(at=0.1, deadline_s=0.5), 0.1)


def test_a_deadline_that_passes_in_line_is_told_and_the_ticket_is_gone() -> None:
    line = Line(LineConfig())
    one, two = ticket(deadline_s=3), ticket(deadline_s=9)
    line.enter(one, 0.0)
    line.enter(two, 0.0)
    assert line.next_timer() == 3
    assert line.expire(2.9) == []
    [(late, error)] = line.expire(3.0)
    assert late is one
    assert isinstance(error, DeadlineExceeded)
    assert error.status == 504
    assert line.first(9, 3.0) == [two]
    line.check()
    with pytest.raises(DeadlineExceeded):
        line.enter(ticket(at=0.0, deadline_s=3), 3.5)


def test_nobody_waits_longer_than_the_line_allows() -> None:
    line = Line(LineConfig(max_wait_s=5))
    fill(line, 1)
    [(_, error)] = line.expire(5.0)
    assert isinstance(error, QueueTimeout)
    assert error.status == 503
    assert error.retry_after_s is not None


# ------------------------------------------------------------------------------------------------------------- promises


def test_a_place_is_kept_for_who_comes_back_when_told() -> None:
    line = Line(LineConfig(max_requests=100, tenant_share=1))
    now = flow(line, 10)
    fill(line, 100, tenant="full", now=now)
    told = {}
    for i in range(20):
        digest = b"%d" % i
        with pytest.raises(QueueFull) as refused:
            line.enter(ticket("guest", at=now, promise=digest), now)
        assert refused.value.retry_after_s is not None
        told[digest] = now + refused.value.retry_after_s
    assert sorted(told.values()) == list(told.values())  # each its own time
    assert told[b"19"] - now == pytest.approx(1.2 * 20 / 10, rel=0.1)
    end = max(told.values()) + 0.1
    while now < end:
        now += 0.1
        serve(line, 1, now, n_output=1)
        with suppress(QueueFull):  # newcomers, all the time
            line.enter(ticket("newcomer", at=now), now)
        for digest, due_at in list(told.items()):
            if now >= due_at:
                del told[digest]
                line.enter(ticket("guest", at=now, promise=digest), now)
        line.check()
    assert not told
    assert line.door.promises.held.n_requests == 0


def test_a_place_that_nobody_fetches_lapses() -> None:
    line = Line(LineConfig(max_requests=10, tenant_share=1, grace_s=5))
    now = flow(line, 10)
    fill(line, 10, tenant="full", now=now)
    with pytest.raises(QueueFull):
        line.enter(ticket("guest", at=now, promise=b"x"), now)
    assert line.door.promises.held.n_requests == 1
    later = now + 10
    newcomer = ticket("other", at=later)
    serve(line, 1, later)
    line.enter(newcomer, later)
    assert line.door.promises.held.n_requests == 0


def test_a_tenant_whose_share_is_full_gets_a_place_by_its_share_of_the_speed() -> None:
    line = Line(LineConfig(max_requests=100, tenant_share=0.1))
    now = flow(line, 10)
    fill(line, 10, tenant="a", now=now)
    fill(line, 10, tenant="b", now=now)
    with pytest.raises(Overloaded) as refused:
        line.enter(ticket("a", at=now, promise=b"x"), now)
    # Ten a second for two tenants, as of the work of answers of one token; each of these is thought to cost no more.
    assert refused.value.retry_after_s == 1.0
    serve(line, 10, now + 1.0, n_output=1)
    line.enter(ticket("a", at=now + 1.0, promise=b"x"), now + 1.0)


def test_promises_are_bounded() -> None:
    line = Line(LineConfig(max_requests=1, max_promises=4, tenant_share=0.5))
    fill(line, 1)
    for i in range(20):
        with pytest.raises(QueueFull):
            line.enter(ticket(f"t{i % 10}", promise=b"%d" % i), 0.0)
    assert len(line.door.promises) == 4
    with pytest.raises(Overloaded):
        line.enter(ticket("a", promise=b"y"), 0.0)


# ---------------------------------------------------------------------------------------------------------------- state


def test_the_counters_survive_a_restart() -> None:
    line = Line(LineConfig())
    fill(line, 3, tenant="heavy", n_prompt=1000)
    fill(line, 1, tenant="light", rank=1)
    serve(line, 4, 1.0, n_output=50)
    kept = msgspec.json.decode(msgspec.json.encode(line.snapshot()))
    again = Line(LineConfig())
    again.restore(kept)
    assert again.snapshot() == line.snapshot()
    fill(again, 1, tenant="heavy")
    fill(again, 1, tenant="new")
    assert again.bands[0].fair.count("heavy") == line.bands[0].fair.count("heavy")
    with pytest.raises(msgspec.ValidationError):
        Line(LineConfig()).restore({"classes": "none"})


def test_a_place_is_kept_for_one_whom_a_limit_tells_to_come_back() -> None:
    line = Line(LineConfig(max_requests=10, tenant_share=1))
    now = flow(line, 10)
    fill(line, 10, tenant="full", now=now)
    assert line.expect(ticket("capped", at=now, promise=b"x"), now + 30, now) == now + 30
    assert line.expect(ticket("capped", at=now, promise=b"y"), now, now) == pytest.approx(now + 1.2 * 0.1, rel=0.01)
    assert line.door.promises.held.n_requests == 2
    serve(line, 1, now + 1)
    line.enter(ticket("capped", at=now + 1, promise=b"y"), now + 1)
    line.check()
