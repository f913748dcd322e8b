"""When a breaker opens, how long it rests, and how it closes again."""

from __future__ import annotations

import random

import pytest

from camshaft.gateway.breaker import Breaker, BreakerConfig, Trial, Turn, must_panic
from camshaft.gateway.outcome import Outcome, of_error
from camshaft.types import ErrorInfo

FAULT, NEUTRAL, SUCCESS = Outcome.FAULT, Outcome.NEUTRAL, Outcome.SUCCESS
PLAIN = BreakerConfig(jitter=0.0)


def breaker_of(config: BreakerConfig = PLAIN) -> tuple[Breaker, list[Turn]]:
    turns: list[Turn] = []
    return Breaker("r0", config, random.Random(3), turns.append), turns


def asked(breaker: Breaker, now: float) -> Trial:
    trial = breaker.ask(now)
    assert trial is not None
    return trial


def tell(breaker: Breaker, outcome: Outcome, n: int, now: float = 0.0) -> None:
    for _ in range(n):
        asked(breaker, now).close(outcome, now)


def test_client_errors_never_open_it() -> None:
    """Five requests with bad JSON took a healthy replica out (gateway failures, row 3)."""
    breaker, turns = breaker_of()
    tell(breaker, of_error(ErrorInfo("invalid_request_error", "bad JSON", 400)).outcome, 500)
    assert breaker.state(0.0) == "closed"
    assert not turns


def test_a_client_error_while_half_open_does_nothing() -> None:
    """A 400 by the probe closed the breaker of a dead replica, or reopened that of a sound one (gateway failures, row 4)."""
    breaker, _ = breaker_of()
    tell(breaker, FAULT, 5)
    for _ in range(20):
        asked(breaker, 6.0).close(NEUTRAL, 6.0)
        assert breaker.state(6.0) == "half_open"
    tell(breaker, SUCCESS, 2, 6.0)
    assert breaker.state(6.0) == "closed"


def test_faults_in_a_row_open_it_and_a_success_between_does_not() -> None:
    breaker, turns = breaker_of()
    for _ in range(3):
        tell(breaker, FAULT, 2)
        tell(breaker, SUCCESS, 4)
    assert breaker.state(0.0) == "closed"
    tell(breaker, NEUTRAL, 1)
    tell(breaker, FAULT, 2)
    tell(breaker, NEUTRAL, 1)  # says nothing, so the row goes on
    tell(breaker, FAULT, 3)
    assert turns[-1] == Turn("r0", "closed", "open", {"n": 23, "faults": 11, "in_a_row": 5, "rest_s": 5.0})


def test_a_bad_rate_opens_it_once_there_is_enough_to_go_by() -> None:
    breaker, _ = breaker_of(BreakerConfig(consecutive=0, jitter=0.0))
    tell(breaker, FAULT, 9)
    assert breaker.state(0.0) == "closed"
    tell(breaker, SUCCESS, 10, 31.0)  # the faults are out of the window
    for _ in range(9):
        tell(breaker, FAULT, 1, 31.0)
        assert breaker.state(31.0) == "closed"
    tell(breaker, FAULT, 1, 31.0)
    assert breaker.state(31.0) == "open"


def test_rests_double_and_end_in_a_bounded_number_of_probes() -> None:
    breaker, turns = breaker_of(BreakerConfig(jitter=0.0, open_most_s=120.0))
    tell(breaker, FAULT, 5)
    now = 0.0
    for rest_s in (5.0, 10.0, 20.0, 40.0, 80.0, 120.0, 120.0):
        assert turns[-1].evidence["rest_s"] == rest_s
        assert breaker.ask(now + rest_s - 0.01) is None
        now += rest_s
        probes = [breaker.ask(now) for _ in range(5)]
        assert [probe is not None for probe in probes] == [True, True, False, False, False]
        assert not breaker.wants_probe(now)
        asked_first = probes[0]
        assert asked_first is not None
        asked_first.close(FAULT, now)
        assert breaker.state(now) == "open"
    tell(breaker, SUCCESS, 2, now + 120.0)
    tell(breaker, FAULT, 5, now + 120.0)
    assert turns[-1].evidence["rest_s"] == 5.0, "having been closed, it begins anew"


def test_one_that_came_back_is_found_within_fifteen_seconds() -> None:
    """However long it was away, and whatever the dice say."""
    for seed in range(20):
        breaker = Breaker("r0", BreakerConfig(), random.Random(seed))
        now = 0.0
        tell(breaker, FAULT, 5)
        for _ in range(10):
            assert breaker.opens_in_s(now) <= 15.0
            now += breaker.opens_in_s(now)
            asked(breaker, now).close(FAULT, now)


def test_rests_vary() -> None:
    rests = set()
    for seed in range(20):
        turns: list[Turn] = []
        breaker = Breaker("r0", BreakerConfig(jitter=0.2), random.Random(seed), turns.append)
        tell(breaker, FAULT, 5)
        rests.add(turns[-1].evidence["rest_s"])
    assert len(rests) > 10
    assert all(4.0 <= rest_s <= 6.0 for rest_s in rests)


def test_what_was_asked_before_it_opened_says_nothing_afterwards() -> None:
    breaker, _ = breaker_of()
    old = [asked(breaker, 0.0) for _ in range(8)]
    tell(breaker, FAULT, 5)
    for trial in old[:4]:
        trial.close(SUCCESS, 1.0)
    assert breaker.state(1.0) == "open"
    assert breaker.state(5.0) == "half_open"
    for trial in old[4:]:
        trial.close(FAULT, 5.0)
    assert breaker.state(5.0) == "half_open"


def test_a_trial_counts_once() -> None:
    breaker, _ = breaker_of()
    trial = asked(breaker, 0.0)
    for _ in range(50):
        trial.close(FAULT, 0.0)
    assert breaker.state(0.0) == "closed"


def test_a_forced_request_tells_nothing_while_it_rests() -> None:
    breaker, _ = breaker_of()
    tell(breaker, FAULT, 5)
    for outcome in (SUCCESS, FAULT):
        forced = breaker.ask(1.0, force=True)
        assert forced is not None
        forced.close(outcome, 1.0)
        assert breaker.opens_in_s(1.0) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("n", "closed", "panic"), [(1, 0, True), (2, 1, False), (2, 0, True), (3, 2, False), (3, 1, True), (4, 2, False), (0, 0, False)]
)
def test_too_few_left_is_panic(n: int, closed: int, panic: bool) -> None:
    assert must_panic(n, closed, 0.5) is panic


def test_it_survives_a_restart_of_the_clock() -> None:
    breaker, _ = breaker_of()
    tell(breaker, FAULT, 5)
    saved = breaker.snapshot(2.0)
    again, _ = breaker_of()
    again.restore(saved, 9000.0)
    assert again.opens_in_s(9000.0) == pytest.approx(3.0)
    assert again.state(9003.0) == "half_open"
    tell(again, FAULT, 1, 9003.0)
    assert again.opens_in_s(9003.0) == pytest.approx(10.0), "the rests go on doubling"
    for nonsense in ({}, {"state": "closed"}, {"state": "open"}, {"state": "open", "rests": "x", "left_s": None}):
        fresh, _ = breaker_of()
        fresh.restore(nonsense, 0.0)
        assert fresh.state(0.0) == "closed"
