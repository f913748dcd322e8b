"""Hash chains, what a replica is believed to hold, and how fast it is."""

from __future__ import annotations

import random

import pytest

from camshaft.gateway.prefix import Prefixes, chain, chain_of_text
from camshaft.gateway.speed import Rate, mean


def test_a_chain_names_full_blocks_and_all_before_them() -> None:
    ids = list(range(1000))
    assert len(chain(ids, 64, "")) == 15
    assert chain(ids[:639], 64, "") == chain(ids, 64, "")[:9]
    changed = [*ids[:100], -1, *ids[101:]]
    assert chain(changed, 64, "")[:1] == chain(ids, 64, "")[:1]
    assert not set(chain(changed, 64, "")[1:]) & set(chain(ids, 64, ""))
    assert chain([], 64, "") == chain(ids[:63], 64, "") == ()


def test_a_tenant_never_meets_anothers_prefix() -> None:
    """B was served from what A had computed: the salt belongs into the hash (gateway failures, row 12)."""
    ids = list(range(640))
    assert not set(chain(ids, 64, "A")) & set(chain(ids, 64, "B"))
    assert not set(chain_of_text("x" * 1000, 64, "A")) & set(chain_of_text("x" * 1000, 64, "B"))


def test_text_is_chained_by_characters() -> None:
    text = "héllo wörld " * 100
    assert len(chain_of_text(text, 64, "")) == 4
    assert chain_of_text(text[:512], 64, "") == chain_of_text(text, 64, "")[:2]
    assert chain_of_text("\ud800" * 256, 64, "\ud800")


def test_a_huge_prompt_has_a_bounded_chain() -> None:
    assert len(chain(range(1_000_000), 64, "")) == 4096


def test_the_oldest_ends_go_first_and_beginnings_last() -> None:
    held = Prefixes(10)
    held.use((1, 2, 3, 4, 5, 6))
    held.use((1, 2, 7, 8))
    held.use((11, 12, 13))
    assert len(held) == 10
    assert held.match((1, 2, 3, 4, 5, 6)) == 5
    assert held.match((1, 2, 7, 8)) == 4
    held.use(tuple(range(100, 200)))
    assert held.match(tuple(range(100, 200))) == 10
    assert held.match((1, 2)) == 0


@pytest.mark.parametrize("seed", range(5))
def test_what_is_held_is_closed_under_prefixes(seed: int) -> None:
    """Bisection is right only then; compared with a walk from the first block."""
    dice = random.Random(seed)
    held = Prefixes(60)
    for _ in range(500):
        blocks = [dice.randrange(3)]
        while dice.random() < 0.9:
            blocks.append(hash((blocks[-1], dice.randrange(2))))
        walked = next((i for i, number in enumerate(blocks) if number not in held._held), len(blocks))
        assert held.match(blocks) == walked
        held.use(blocks)
        assert len(held) <= 60


def test_speed_is_of_busy_time_only() -> None:
    rate = Rate(half_s=5.0)
    for start in range(0, 1000, 100):
        rate.begin(float(start))
        rate.credit(1000.0, start + 1.0)
        rate.end()
    assert rate.per_s(1000.0, 0.0, 5000.0) == pytest.approx(1000.0)


def test_work_side_by_side_is_one_busy_time() -> None:
    rate = Rate(half_s=100.0)
    for _ in range(4):
        rate.begin(0.0)
    for i in range(4):
        rate.credit(500.0, (i + 1) * 0.5)
        rate.end()
    work, busy_s = rate.totals
    assert work / busy_s == pytest.approx(1000.0, rel=0.02)


def test_one_that_falls_silent_slows_down_without_a_word() -> None:
    rate = Rate(half_s=5.0)
    rate.begin(0.0)
    rate.credit(10_000.0, 10.0)
    assert rate.per_s(1000.0, 500.0, 10.1) == pytest.approx(1000.0, rel=0.2)
    assert rate.per_s(1000.0, 500.0, 40.0) < 300.0


def test_the_pools_mean_stands_in_for_what_was_not_measured() -> None:
    fast, fresh = Rate(5.0), Rate(5.0)
    assert mean([fast, fresh], 123.0) == 123.0
    fast.begin(0.0)
    fast.credit(8000.0, 4.0)
    usual = mean([fast, fresh], 123.0)
    assert usual == pytest.approx(2000.0)
    assert fresh.per_s(usual, 0.0, 4.0) == pytest.approx(2000.0)
