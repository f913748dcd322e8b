"""How often is tried again."""

from __future__ import annotations

import random

from camshaft.gateway.retry import RetryBudget, RetryConfig


def test_retries_are_a_share_of_traffic_with_a_small_floor() -> None:
    budget = RetryBudget(RetryConfig(share=0.2, floor_per_s=1.0, window_s=10.0), random.Random(1))
    assert sum(budget.spend(1, 0.0) for _ in range(100)) == 10
    for _ in range(200):
        budget.request(1.0)
    assert sum(budget.spend(1, 1.0) for _ in range(100)) == 40
    assert sum(budget.spend(1, 12.0) for _ in range(100)) == 10, "what is out of the window is forgotten"


def test_when_everything_fails_load_grows_by_the_share_only() -> None:
    budget = RetryBudget(RetryConfig(share=0.1, floor_per_s=0.0), random.Random(1))
    n_tries = 0
    for i in range(10_000):
        now = i / 100
        budget.request(now)
        tries = 1
        while budget.spend(tries, now):
            tries += 1
        n_tries += tries
    assert n_tries <= 11_010


def test_one_request_is_tried_a_bounded_number_of_times() -> None:
    budget = RetryBudget(RetryConfig(tries=3, floor_per_s=100.0), random.Random(1))
    assert [budget.spend(n, 0.0) for n in (1, 2, 3, 4)] == [True, True, False, False]


def test_it_keeps_ten_slices_whatever_happens() -> None:
    budget = RetryBudget(RetryConfig(), random.Random(1))
    for i in range(10_000):
        budget.request(i * 0.37)
    assert len(budget._slices) <= 10


def test_the_first_goes_at_once_and_later_ones_wait_longer() -> None:
    budget = RetryBudget(RetryConfig(wait_s=0.1, wait_most_s=1.0), random.Random(1))
    assert budget.wait_s(1) == 0.0
    for n, most in ((2, 0.1), (3, 0.2), (4, 0.4), (6, 1.0), (1000, 1.0)):
        waits = {budget.wait_s(n) for _ in range(50)}
        assert len(waits) > 10
        assert all(most / 2 <= wait <= most for wait in waits)
