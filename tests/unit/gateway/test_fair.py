"""Virtual token counters: charges, the lift, weights, and forgetting without giving anything away."""

from __future__ import annotations

import random

from camshaft.gateway.fair import W_IN, W_OUT, Fair


def even(tenant: str) -> float:
    return 1.0


def test_input_is_charged_at_admission_and_output_as_it_comes_at_twice_the_price() -> None:
    fair = Fair(even)
    fair.arrive("a")
    fair.admit("a", 100)
    assert fair.count("a") == 100
    fair.produced("a", 10)
    assert fair.count("a") == 120


def test_only_computed_tokens_stay_charged() -> None:
    """Tenants with long shared prompts would pay for what the cache had."""
    fair = Fair(even)
    fair.arrive("a")
    fair.admit("a", 1000)
    fair.give_back("a", 900)
    assert fair.count("a") == 100


def test_the_least_counter_is_next() -> None:
    fair = Fair(even)
    for tenant in "abc":
        fair.arrive(tenant)
        fair.arrive(tenant)
    assert list(fair) == ["a", "b", "c"]
    fair.admit("a", 50)
    fair.admit("b", 20)
    assert list(fair) == ["c", "b", "a"]
    fair.produced("b", 20)
    assert list(fair) == ["c", "a", "b"]


def test_who_comes_back_from_idleness_is_lifted_to_the_least_that_waits() -> None:
    fair = Fair(even)
    fair.arrive("old")
    fair.admit("old", 10)
    fair.arrive("busy")
    for _ in range(5):
        fair.arrive("busy")
        fair.admit("busy", 100)
    assert fair.count("busy") == 510  # it was lifted to 10 itself
    fair.arrive("old")
    fair.arrive("new")
    assert fair.count("old") == fair.count("new") == 510


def test_where_nobody_waits_the_lift_is_to_the_last_that_left() -> None:
    fair = Fair(even)
    fair.arrive("busy")
    fair.admit("busy", 100)
    fair.produced("busy", 50)  # it still runs, and its counter with it
    fair.arrive("late")
    assert fair.count("late") == 200


def test_who_has_more_than_the_others_keeps_it() -> None:
    fair = Fair(even)
    fair.arrive("patient")
    fair.arrive("greedy")
    fair.admit("greedy", 1000)
    fair.arrive("greedy")
    fair.arrive("new")
    assert (fair.count("patient"), fair.count("new"), fair.count("greedy")) == (0, 0, 1000)
    assert list(fair) == ["patient", "new", "greedy"]


def test_a_tenant_of_twice_the_weight_gets_twice_the_service() -> None:
    fair = Fair(lambda tenant: 2.0 if tenant == "gold" else 1.0)
    served = {"gold": 0, "plain": 0}
    for tenant in served:
        fair.arrive(tenant)
    for _ in range(300):
        tenant = next(iter(fair))
        fair.arrive(tenant)
        fair.admit(tenant, 10)
        served[tenant] += 1
    assert served == {"gold": 200, "plain": 100}


def test_the_service_of_two_that_always_wait_differs_by_the_papers_bound_at_most() -> None:
    """Non-preemptive, with `m` requests at a time and lengths that differ much: 2 * max(W_IN * L_in, W_OUT * M)."""
    dice = random.Random(5)
    most_in, most_out, m = 300, 200, 6
    fair = Fair(even)
    service = dict.fromkeys("abc", 0.0)
    mean = {"a": (most_in, 2), "b": (3, most_out), "c": (50, 50)}
    running: list[tuple[str, int]] = []
    for tenant in service:
        fair.arrive(tenant)
    worst = 0.0
    for _ in range(20_000):
        while len(running) < m:
            tenant = next(iter(fair))
            n_in, n_out = (1 + dice.randrange(most) for most in mean[tenant])
            fair.arrive(tenant)
            fair.admit(tenant, n_in)
            service[tenant] += W_IN * n_in
            running.append((tenant, n_out))
        for tenant, _ in running:
            fair.produced(tenant, 1)
            service[tenant] += W_OUT
        for tenant, left in running:
            if left == 1:
                fair.finish(tenant)
        running = [(tenant, left - 1) for tenant, left in running if left > 1]
        worst = max(worst, max(service.values()) - min(service.values()))
    assert worst <= 2 * max(W_IN * most_in, W_OUT * m * most_out)
    fair.check()


def test_idle_tenants_are_forgotten_and_nobody_gains_by_it() -> None:
    fair = Fair(even, most=100)
    fair.arrive("busy")
    for n in range(1000):
        fair.arrive("busy")
        fair.admit("busy", 10)
        fair.finish("busy")
        fair.arrive(f"once {n}")
        before = fair.level()
        fair.admit(f"once {n}", 5)
        fair.finish(f"once {n}")
        assert fair.level() >= before
        assert len(fair) <= 101
    level = fair.level()
    fair.arrive("once 3")
    assert fair.count("once 3") == level >= fair.count("busy")
    fair.check()


def test_tenants_that_wait_are_never_forgotten() -> None:
    fair = Fair(even, most=10)
    for n in range(50):
        fair.arrive(str(n))
    assert len(list(fair)) == 50
    for n in range(50):
        fair.withdraw(str(n))
    for n in range(50, 200):
        fair.arrive(str(n))
        fair.withdraw(str(n))
    assert len(fair) <= 70


def test_counters_survive_a_restart() -> None:
    fair = Fair(even)
    for tenant, n in (("a", 500), ("b", 100)):
        fair.arrive(tenant)
        fair.admit(tenant, n)
    again = Fair(even)
    again.restore(*fair.snapshot())
    again.arrive("new")
    assert again.count("new") == fair.level()  # nobody starts at zero beside those who have been served
    assert again.count("a") == 500
    again.check()
