"""Limits of a tenant: reserved before, settled after, refused with the time at which it will fit."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from camshaft.errors import RateLimited, RequestTooLarge
from camshaft.gateway.bucket import Bucket
from camshaft.gateway.limit import Cost, Grant, LimitConfig, Limiter, duration


def refused(limiter: Limiter, cost: Cost, now: float, tenant: str = "a") -> float:
    """The seconds after which it may come back."""
    with pytest.raises(RateLimited) as error:
        limiter.admit(tenant, cost, now)
    assert error.value.status == 429
    assert error.value.retry_after_s is not None
    return error.value.retry_after_s


# --------------------------------------------------------------------------------------------------------------- bucket


def test_a_bucket_refills_all_the_time() -> None:
    bucket = Bucket(60, 0.0)
    bucket.take(60, 0.0)
    assert bucket.wait_s(1, 0.0) == 1.0
    assert bucket.wait_s(1, 1.0) == 0.0
    assert bucket.level(30.0) == 30
    assert bucket.full_s(30.0) == 30
    assert bucket.level(1e6) == 60


def test_a_smaller_limit_leaves_in_use_what_is_in_use() -> None:
    bucket = Bucket(100, 0.0)
    bucket.take(30, 0.0)
    bucket.resize(50, 0.0)
    assert bucket.level(0.0) == 20


def test_promised_places_leave_nothing_rather_than_no_limit() -> None:
    """A level that promises take below 0 was shown as if the tenant had no limit."""
    limiter = Limiter(LimitConfig(requests_per_minute=1))
    limiter.admit("a", Cost(1, 1), 0.0)
    refused(limiter, Cost(1, 1), 0.0)
    assert limiter.left("a", 0.0) == (0.0, -1.0)


# ---------------------------------------------------------------------------------------------------------- reservation


def test_five_at_once_under_a_hundred_tokens_a_minute_never_exceed_it_together() -> None:
    """Five concurrent requests used 663 tokens under a limit of 100, since each was charged after its answer (gateway failures, row 8)."""
    limiter = Limiter(LimitConfig(tokens_per_minute=100))
    grants, waits = [], []
    for _ in range(5):
        try:
            grants.append(limiter.admit("a", Cost(10, 30), 0.0))
        except RateLimited as error:
            waits.append(error.retry_after_s)
    assert sum(grant.n_reserved for grant in grants) == 80
    assert waits == [pytest.approx(20 * 60 / 100)] * 3  # 20 are left, 40 are asked for
    limiter.admit("a", Cost(10, 30), 12.0)


def test_what_is_larger_than_the_bucket_is_refused_at_once_for_good() -> None:
    """A request larger than the bucket's capacity waited for ever (gateway failures, row 9)."""
    limiter = Limiter(LimitConfig(tokens_per_minute=100))
    with pytest.raises(RequestTooLarge) as error:
        limiter.admit("a", Cost(50, 51), 0.0)
    assert (error.value.status, error.value.retry_after_s) == (413, None)
    limiter.admit("a", Cost(50, 50), 0.0)


def test_the_difference_to_what_was_used_goes_back_to_this_very_request() -> None:
    """Streams without usage were never charged, or the next request was, and `remaining` did not fall (gateway failures, row 10)."""
    limiter = Limiter(LimitConfig(tokens_per_minute=1000))
    grant = limiter.admit("a", Cost(100, 400), 0.0)
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-tokens"] == "500"
    grant.settle(n_prompt=100, n_cached=60, n_output=50, now=0.0)
    grant.settle(n_prompt=100, n_cached=0, n_output=400, now=0.0)  # the first one counts
    grant.close(0.0)
    grant.close(0.0)
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-tokens"] == "910"
    limiter.check(0.0)


def test_a_grant_that_was_never_used_gives_all_back() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=1000, requests_per_minute=10, concurrent_requests=1))
    limiter.admit("a", Cost(100, 400), 0.0).close(0.0)
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-tokens"] == "1000"
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-requests"] == "10"
    assert limiter.n_running("a") == 0


def test_an_answer_without_a_maximum_reserves_an_estimate_that_learns() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=2000, output_estimate=500))
    grant = limiter.admit("a", Cost(100), 0.0)
    assert grant.n_reserved == 600
    grant.settle(100, 0, 40, 0.0)
    grant.close(0.0)
    assert limiter.admit("a", Cost(100), 0.0).n_reserved == 160
    assert limiter.admit("b", Cost(1900), 0.0).n_reserved == 2000  # no estimate makes a request too large


def test_an_answer_longer_than_reserved_is_paid_for_afterwards() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600, output_estimate=100))
    grant = limiter.admit("a", Cost(100), 0.0)
    grant.settle(100, 0, 600, 0.0)
    grant.close(0.0)
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-tokens"] == "0"
    assert refused(limiter, Cost(0, 10), 0.0) == pytest.approx(11.0)


def test_requests_a_minute_and_at_once() -> None:
    limiter = Limiter(LimitConfig(requests_per_minute=2, concurrent_requests=1))
    first = limiter.admit("a", Cost(1, 1), 0.0)
    assert refused(limiter, Cost(1, 1), 0.0) == 5.0  # nothing is known of how long one takes
    first.settle(1, 0, 1, 2.0)
    first.close(2.0)
    second = limiter.admit("a", Cost(1, 1), 2.0)
    assert refused(limiter, Cost(1, 1), 2.0) == pytest.approx(28.0)
    second.settle(1, 0, 1, 4.0)
    second.close(4.0)
    third = limiter.admit("a", Cost(1, 1), 30.0)
    assert refused(limiter, Cost(1, 1), 31.0) == pytest.approx(29.0)
    third.close(32.0)


def test_tenants_do_not_share_and_have_limits_of_their_own() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=100), {"gold": LimitConfig(tokens_per_minute=1000), "free": LimitConfig()})
    limiter.admit("a", Cost(0, 100), 0.0)
    limiter.admit("b", Cost(0, 100), 0.0)
    limiter.admit("gold", Cost(0, 1000), 0.0)
    for _ in range(100):
        limiter.admit("free", Cost(0, 10**9), 0.0)
    assert limiter.headers("free", 0.0) == {}
    limiter.configure(LimitConfig(tokens_per_minute=200), {}, 0.0)
    assert limiter.headers("a", 0.0)["x-ratelimit-remaining-tokens"] == "100"
    assert limiter.headers("gold", 0.0)["x-ratelimit-remaining-tokens"] == "0"


def test_the_headers_say_what_openai_says() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600, requests_per_minute=60))
    limiter.admit("a", Cost(100, 200), 0.0)
    assert limiter.headers("a", 0.0) == {
        "x-ratelimit-limit-requests": "60",
        "x-ratelimit-remaining-requests": "59",
        "x-ratelimit-reset-requests": "1s",
        "x-ratelimit-limit-tokens": "600",
        "x-ratelimit-remaining-tokens": "300",
        "x-ratelimit-reset-tokens": "30s",
    }
    assert [duration(s) for s in (0.0, 0.0195, 1.2, 360.0)] == ["0ms", "20ms", "2s", "6m0s"]


# ------------------------------------------------------------------------------------------------------------- promises


def test_who_comes_back_when_told_is_let_in_and_newcomers_do_not_take_the_place() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600))
    limiter.admit("a", Cost(0, 600), 0.0)
    first = refused(limiter, Cost(0, 100, b"1"), 0.0)
    second = refused(limiter, Cost(0, 200, b"2"), 0.0)
    assert (first, second) == (pytest.approx(10.0), pytest.approx(30.0))
    assert refused(limiter, Cost(0, 10), 9.0) == pytest.approx(22.0)  # behind both
    limiter.admit("a", Cost(0, 100, b"1"), 10.0)
    assert refused(limiter, Cost(0, 10), 29.0) == pytest.approx(2.0)
    assert limiter.admit("a", Cost(0, 200, b"2"), 30.0).n_reserved == 200
    limiter.check(30.0)


def test_who_comes_too_early_keeps_the_same_place() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600))
    limiter.admit("a", Cost(0, 600), 0.0)
    assert refused(limiter, Cost(0, 100, b"1"), 0.0) == pytest.approx(10.0)
    for now in range(1, 10):
        assert refused(limiter, Cost(0, 100, b"1"), now) == pytest.approx(10.0 - now)
    limiter.admit("a", Cost(0, 100, b"1"), 10.0)


def test_equal_requests_of_different_clients_get_a_place_each() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600))
    limiter.admit("a", Cost(0, 600), 0.0)
    waits = [refused(limiter, Cost(0, 100, b"same"), 0.01 * i) for i in range(5)]
    assert waits == [pytest.approx(10.0 * (i + 1) - 0.01 * i) for i in range(5)]
    for i in range(5):
        limiter.admit("a", Cost(0, 100, b"same"), 10.0 * (i + 1))


def test_what_comes_back_early_because_others_used_less_is_let_in_early() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600))
    grant = limiter.admit("a", Cost(0, 600), 0.0)
    refused(limiter, Cost(0, 100, b"1"), 0.0)
    grant.settle(0, 0, 10, 1.0)
    grant.close(1.0)
    limiter.admit("a", Cost(0, 100, b"1"), 1.0)


def test_a_place_that_nobody_fetches_gives_back_what_it_took() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600), grace_s=5)
    limiter.admit("a", Cost(0, 600), 0.0)
    refused(limiter, Cost(0, 100, b"1"), 0.0)
    refused(limiter, Cost(0, 500), 15.0)
    limiter.admit("a", Cost(0, 160), 16.0)
    limiter.check(16.0)


def test_a_slot_is_kept_for_who_was_told_to_come_back() -> None:
    limiter = Limiter(LimitConfig(concurrent_requests=2))
    for now in (0.0, 0.5):  # each takes 4 s
        grant = limiter.admit("a", Cost(1, 1), now)
        grant.close(now + 4.0)
    running = [limiter.admit("a", Cost(1, 1), 10.0), limiter.admit("a", Cost(1, 1), 12.0)]
    assert refused(limiter, Cost(1, 1, b"1"), 13.0) == pytest.approx(1.0)
    assert refused(limiter, Cost(1, 1, b"2"), 13.0) == pytest.approx(3.0)
    running[0].close(14.0)
    refused(limiter, Cost(1, 1), 14.0)  # a newcomer
    limiter.admit("a", Cost(1, 1, b"1"), 14.0)
    assert refused(limiter, Cost(1, 1, b"2"), 16.0) >= 1.0  # the other one takes longer than most: the place moves
    running[1].close(16.5)
    limiter.admit("a", Cost(1, 1, b"2"), 18.0)
    assert limiter.n_running("a") == 2


# ---------------------------------------------------------------------------------------------------------------- state


def test_limits_survive_a_restart_of_the_process_and_of_the_clock() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600, requests_per_minute=60))
    limiter.admit("a", Cost(0, 600), 1000.0)
    refused(limiter, Cost(0, 300, b"1"), 1000.0)
    kept = msgspec.json.decode(msgspec.json.encode(limiter.snapshot(1000.0, wall=5e8)))
    again = Limiter(LimitConfig(tokens_per_minute=600, requests_per_minute=60))
    again.restore(kept, now=3.0, wall=5e8 + 20)
    assert refused(again, Cost(0, 300, b"1"), 3.0) == pytest.approx(10.0)
    again.admit("a", Cost(0, 300, b"1"), 13.0)
    back = Limiter(LimitConfig(tokens_per_minute=600, requests_per_minute=60))
    back.restore(kept, now=0.0, wall=1.0)  # the wall clock was set back
    assert refused(back, Cost(0, 300, b"1"), 0.0) == pytest.approx(30.0)
    with pytest.raises(msgspec.ValidationError):
        back.restore({"levels": 3}, 0.0, 0.0)


def test_tenants_that_are_forgotten_lose_nothing_and_their_number_is_bounded() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600), most=100)
    busy = limiter.admit("busy", Cost(0, 600), 0.0)
    for i in range(1000):
        limiter.admit(f"t{i}", Cost(0, 100), i * 0.2).close(i * 0.2)
        assert len(limiter.snapshot(i * 0.2, 0.0)["levels"]) <= 100
    assert limiter.n_running("busy") == 1
    busy.close(200.0)


# ----------------------------------------------------------------------------------------------------------- properties


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target))
@given(st.lists(st.tuples(st.floats(0, 20), st.integers(0, 60), st.integers(1, 60), st.integers(0, 9), st.integers(0, 3)), max_size=60))
def test_whatever_happens_no_window_sees_more_than_the_limit(events: list[tuple[float, int, int, int, int]]) -> None:
    """Admitted reservations, less what came back, in any t seconds: at most (1 + t / 60) * limit. Nothing leaks."""
    limit = 100
    limiter = Limiter(LimitConfig(tokens_per_minute=limit, concurrent_requests=5))
    admitted: list[tuple[float, float]] = []  # when, and how much
    grants: list[Grant] = []
    waits, too_large = [1.0], [limit + 1]
    now = 0.0
    for gap_s, n_prompt, n_output, digest, what in events:
        now += gap_s
        if what == 0 and grants:
            grant = grants.pop(digest % len(grants))
            n_used = n_output % (grant.n_reserved + 1)
            admitted.append((now, n_used - grant.n_reserved))
            grant.settle(0, 0, n_used, now)
            grant.close(now)
        else:
            try:
                grants.append(limiter.admit("a", Cost(n_prompt, n_output, bytes([digest]) if digest else b""), now))
                admitted.append((now, grants[-1].n_reserved))
            except RateLimited as error:
                waits.append(error.retry_after_s or 0.0)
            except RequestTooLarge:
                too_large.append(n_prompt + n_output)
        assert limiter.n_running("a") == len(grants) <= 5
        limiter.check(now)
    assert min(waits) > 0
    assert min(too_large) > limit
    for i, (since, _) in enumerate(admitted):
        total = 0.0
        for at, n in admitted[i:]:
            total += n
            assert total <= limit * (1 + (at - since + 0.1) / 60) + 1e-3
    for grant in grants:
        grant.settle(0, 0, grant.n_reserved, now)
        grant.close(now)
    assert limiter.n_running("a") == 0
    later = now + 3600
    limiter.snapshot(later, 0.0)
    assert limiter.admit("a", Cost(0, limit), later).n_reserved == limit  # all came back


@settings(max_examples=40, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate, Phase.target))
@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 100), st.booleans()), min_size=1, max_size=40))
def test_who_obeys_is_let_in_at_the_next_try(arrivals: list[tuple[float, int, bool]]) -> None:
    """With limits of rates alone the promise is exact, whoever else comes meanwhile."""
    limiter = Limiter(LimitConfig(tokens_per_minute=300, requests_per_minute=30))
    due: list[tuple[float, Cost]] = []
    now = 0.0
    for i, (gap_s, n, named) in enumerate(arrivals):
        now += gap_s
        for at, cost in sorted(entry for entry in due if entry[0] <= now):
            limiter.admit("a", cost, at)
            due.remove((at, cost))
        cost = Cost(0, n, b"%d" % i if named else b"")
        try:
            limiter.admit("a", cost, now)
        except RateLimited as error:
            if named:
                due.append((now + (error.retry_after_s or 0.0), cost))
    for at, cost in sorted(due):
        limiter.admit("a", cost, at)


def test_who_is_refused_further_on_keeps_what_was_reserved_until_then() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600, concurrent_requests=1))
    limiter.admit("a", Cost(0, 500, b"1"), 0.0).put_off(limiter, b"1", 20.0, 0.0)
    assert limiter.n_running("a") == 0
    refused(limiter, Cost(0, 600), 10.0)  # a newcomer
    assert limiter.admit("a", Cost(0, 500, b"1"), 20.0).n_reserved == 500
    limiter.check(20.0)


def test_a_place_moves_to_when_something_further_on_has_room_too() -> None:
    limiter = Limiter(LimitConfig(tokens_per_minute=600))
    limiter.admit("a", Cost(0, 600), 0.0)
    refused(limiter, Cost(0, 100, b"1"), 0.0)
    limiter.put_off(b"1", 15.0)
    limiter.put_off(b"unknown", 15.0)
    assert limiter.admit("a", Cost(0, 100, b"1"), 15.0).n_reserved == 100
    limiter.check(15.0)
