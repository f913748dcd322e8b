"""Eviction policies."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from types import ModuleType

import pytest

from camshaft.kv.block import Block
from camshaft.kv.evict import HINT_SHARE, Lru, Retention, kind_of, make_evictor
from camshaft.kv.manager import Claim, KVManager
from camshaft.kv.sessions import Sessions
from camshaft.kv.worth import Worth
from camshaft.types import Capacity, KVGroup
from shared_data import shared_data_or_skip


def bench() -> ModuleType:
    path = Path(__file__).parents[3] / "bench" / "evict_trace.py"
    spec = importlib.util.spec_from_file_location("evict_trace", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def block(id: int, worth: Worth | None = None, uses: int = 0) -> Block:
    made = Block(id, worth or Worth())
    made.uses = uses
    return made


def test_lru_takes_the_one_let_go_first() -> None:
    lru, blocks = Lru(), [block(i) for i in range(3)]
    for b in blocks:
        lru.add(b, 0.0)
    lru.remove(blocks[0])
    assert lru.pop(0.0)[0] is blocks[1]
    assert len(lru) == 1


def test_retention_orders_other_than_by_last_use() -> None:
    policy = Retention()
    talk, once = block(1, Worth(turns=4)), block(2)
    policy.add(talk, 0.0)
    policy.add(once, 30.0)
    assert policy.pop(100.0) == (once, "once"), "the fourth turn's blocks are worth more, though they are older"


def test_retention_pins_nothing() -> None:
    policy = Retention()
    talk, once = block(1, Worth(turns=9, n_tokens=10_000, hinted=True)), block(2)
    policy.add(talk, 0.0)
    policy.add(once, 3600.0)
    assert policy.pop(3601.0)[0] is talk


def test_a_quick_session_is_over_sooner_than_a_slow_one() -> None:
    policy = Retention()
    quick, slow = block(1, Worth(turns=3, pace_s=5)), block(2, Worth(turns=3, pace_s=600))
    policy.add(slow, 0.0)
    policy.add(quick, 0.0)
    assert kind_of(quick).log_value(1.0, hints_count=True) > kind_of(slow).log_value(1.0, hints_count=True)
    assert policy.pop(200.0)[0] is quick


def test_shared_use_counts_as_turns_do() -> None:
    policy = Retention()
    hot, cold = block(1, uses=5), block(2)
    policy.add(hot, 0.0)
    policy.add(cold, 10.0)
    assert policy.pop(60.0)[0] is cold


def test_what_is_dear_to_compute_again_stays_longer() -> None:
    policy = Retention()
    dear, cheap = block(1, Worth(n_tokens=8000)), block(2, Worth(n_tokens=100))
    policy.add(dear, 0.0)
    policy.add(cheap, 1.0)
    assert policy.pop(60.0)[0] is cheap


def test_a_wish_to_be_kept_counts_and_its_share_is_bounded() -> None:
    policy = Retention()
    wished, other = block(1, Worth(hinted=True)), block(2)
    policy.add(wished, 0.0)
    policy.add(other, 5.0)
    assert policy.pop(60.0)[0] is other
    # When wishes hold more than their share of what is cached, they count for nothing.
    policy.add(block(3, Worth(hinted=True)), 5.0)
    policy.add(other, 6.0)
    assert HINT_SHARE == 0.5
    assert policy.pop(60.0)[0] is wished


@pytest.mark.parametrize("name", ["lru", "retention"])
def test_books_balance_whatever_is_added_and_removed(name: str) -> None:
    dice, policy = random.Random(3), make_evictor(name)
    inside: list[Block] = []
    outside = [block(i) for i in range(50)]
    for now in range(2000):
        if outside and (not inside or dice.random() < 0.5):
            b = outside.pop(dice.randrange(len(outside)))
            b.worth = Worth(dice.randint(1, 6), dice.choice([5.0, 60.0, 500.0]), dice.choice([10, 9000]), dice.random() < 0.3)
            policy.add(b, float(now))
            inside.append(b)
        elif dice.random() < 0.5:
            b = inside.pop(dice.randrange(len(inside)))
            policy.remove(b)
            outside.append(b)
        else:
            b, _ = policy.pop(float(now))
            inside.remove(b)
            outside.append(b)
        assert len(policy) == len(inside)
        assert all(b.home is not None for b in inside)


def test_sessions_know_their_turns_and_pace_and_are_bounded() -> None:
    sessions = Sessions(60.0)
    assert sessions.visit("", "a", 0.0) == (1, 60.0)
    assert sessions.visit("", "a", 10.0) == (2, 10.0)
    assert sessions.visit("", "a", 40.0) == (3, 20.0)
    assert sessions.visit("t", "a", 40.0)[0] == 1, "another tenant's session of the same name is another one"
    for i in range(10_000):
        sessions.visit("", f"s{i}", 50.0)
    assert len(sessions) <= 8192
    assert sessions.visit("", "a", 60.0)[0] == 1


def test_a_conversation_without_a_name_shows_in_the_tree() -> None:
    kv = KVManager(Capacity(1000, 1000, 4, 65, (KVGroup(1),), 8, 64), Retention())
    ids: list[int] = []
    for turn in range(1, 4):
        ids += [turn] * 8
        grant = kv.admit(Claim(ids, len(ids)), float(turn))
        assert grant is not None
        assert grant.table.worth.turns == turn
        kv.commit(grant.table, ids, len(ids), float(turn))
        kv.release(grant.table, float(turn))


def two_kinds_of_traffic(seed: int) -> list[tuple[float, tuple[int, ...]]]:
    """Conversations that go on, among many prompts that never come back."""
    dice = random.Random(seed)
    arrivals: list[tuple[float, tuple[int, ...]]] = []
    next_block = 0
    for _ in range(40):
        at, ids = dice.uniform(0, 900), ()
        for _ in range(8):
            ids = (*ids, *range(next_block, next_block + 6))
            next_block += 6
            arrivals.append((at, ids))
            at += dice.uniform(60, 120)
    for _ in range(1200):
        arrivals.append((dice.uniform(0, 1800), tuple(range(next_block, next_block + 8))))
        next_block += 8
    return sorted(arrivals)


@pytest.mark.parametrize("n_blocks", [800, 1000, 1300])
def test_retention_beats_lru_on_conversations_among_one_time_prompts(n_blocks: int) -> None:
    module = bench()
    arrivals = [module.Arrival(at, ids) for at, ids in two_kinds_of_traffic(1)]
    assert module.replay(arrivals, "retention", n_blocks).hit_rate > 1.03 * module.replay(arrivals, "lru", n_blocks).hit_rate


@pytest.mark.slow
@pytest.mark.parametrize("n_blocks", [2_000, 5_000, 10_000, 20_000])
def test_retention_beats_lru_on_a_recorded_trace(n_blocks: int) -> None:
    module = bench()
    arrivals = module.read_trace(shared_data_or_skip() / "traces" / "mooncake" / "conversation_trace.jsonl")
    assert module.replay(arrivals, "retention", n_blocks).hit_rate > module.replay(arrivals, "lru", n_blocks).hit_rate
