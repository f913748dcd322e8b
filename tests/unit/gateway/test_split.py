"""Which version a conversation gets, and that it keeps it."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.errors import BadRequest, ConfigError
from camshaft.gateway.split import N_BUCKETS, Split, Sticky, Table, bucket, conversation, quotas
from camshaft.types import ChatPrompt, TextPrompt

CONVERSATIONS = [Sticky(session=f"s{i}", request="") for i in range(10_000)]
WEIGHTS = st.dictionaries(st.sampled_from("abcdef"), st.floats(0, 100, allow_subnormal=False), min_size=1).filter(
    lambda w: sum(w.values()) > 0.01
)


def owners(table: Table) -> list[str]:
    return [table.version(i) for i in range(N_BUCKETS)]


def test_nobody_changes_version_while_weights_stand() -> None:
    """A weight drawn for each request sent one conversation to both versions (gateway failures, row 22)."""
    split = Split({"v1": 90, "v2": 10}, salt="m")
    chosen: list[str] = []
    for turn in range(20):
        answers = [split.choose(c._replace(request=f"{i}-{turn}")) for i, c in enumerate(CONVERSATIONS)]
        chosen = chosen or answers
        assert answers == chosen
    assert Counter(chosen)["v2"] == pytest.approx(1000, abs=100), "the share is realised within 1 %"


def test_raising_a_share_moves_only_the_new_buckets() -> None:
    """Going from 10 to 20 % dealt everybody anew (gateway failures, row 22)."""
    split = Split({"v1": 90, "v2": 10}, salt="m")
    before = [split.choose(c) for c in CONVERSATIONS]
    assert split.reweigh({"v1": 80, "v2": 20}) == 1000
    after = [split.choose(c) for c in CONVERSATIONS]
    moved = Counter((b, a) for b, a in zip(before, after, strict=True) if a != b)
    assert set(moved) == {("v1", "v2")}
    assert moved["v1", "v2"] == pytest.approx(1000, abs=100)
    assert Counter(after)["v2"] == pytest.approx(2000, abs=100)
    split.reweigh({"v1": 90, "v2": 10})
    assert [split.choose(c) for c in CONVERSATIONS] == before


def test_shares_of_many_versions_are_realised() -> None:
    weights = {"a": 1, "b": 5, "c": 14, "d": 80}
    split = Split(weights, salt="x")
    counts = Counter(split.choose(c) for c in CONVERSATIONS)
    for name, weight in weights.items():
        assert counts[name] == pytest.approx(100 * weight, abs=100)


@settings(deadline=None, max_examples=60)
@given(st.lists(WEIGHTS, min_size=2, max_size=5))
def test_exactly_the_change_of_shares_moves(history: list[dict[str, float]]) -> None:
    """For any number of versions, raised, lowered, added and taken away."""
    table = Table(history[0])
    for weights in history[1:]:
        before, old = owners(table), Counter(owners(table))
        n_moved = table.reweigh(weights)
        after, new = owners(table), Counter(owners(table))
        assert {name: n for name, n in quotas(weights).items() if n} == dict(new)
        rises = sum(max(0, new[name] - old[name]) for name in new)
        assert sum(b != a for b, a in zip(before, after, strict=True)) == rises == n_moved
        for b, a in zip(before, after, strict=True):
            assert b == a or (new[b] < old[b] and new[a] > old[a]), "only from those that fall to those that rise"


@settings(deadline=None, max_examples=60)
@given(WEIGHTS, WEIGHTS)
def test_undoing_the_last_change_restores_the_table(first: dict[str, float], second: dict[str, float]) -> None:
    table = Table(first)
    before = Counter(owners(table)), owners(table)
    table.reweigh(second)
    n = table.reweigh(first)
    assert Counter(owners(table)) == before[0]
    if len(first) <= 2 and set(second) <= set(first):
        assert owners(table) == before[1]
    assert n == sum(max(0, quotas(first)[k] - quotas(second).get(k, 0)) for k in first)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=6))
def test_two_versions_are_a_cut_whatever_came_before(shares: list[int]) -> None:
    table = Table({"stable": 1, "canary": 0})
    for share in shares:
        table.reweigh({"stable": 10_000 - share, "canary": share})
        assert owners(table) == ["canary"] * share + ["stable"] * (10_000 - share)
        assert owners(table) == owners(Table({"stable": 10_000 - share, "canary": share}))


@settings(deadline=None, max_examples=40)
@given(st.lists(WEIGHTS, min_size=1, max_size=4), WEIGHTS)
def test_a_restart_moves_nobody(history: list[dict[str, float]], changed: dict[str, float]) -> None:
    table = Table(history[0])
    for weights in history[1:]:
        table.reweigh(weights)
    saved = json.loads(json.dumps(table.snapshot()))
    again = Table.restored(saved, history[-1])
    assert owners(again) == owners(table)
    table.reweigh(changed)
    assert owners(Table.restored(saved, changed)) == owners(table), "the file may have changed meanwhile"


def test_a_damaged_snapshot_is_not_believed() -> None:
    for saved in ({}, {"a": [[0, 9_999, 1]]}, {"a": [[0, 10_000, 1]], "b": [[5, 1, 1]]}, {"a": [[1, 10_000, 1]]}):
        assert owners(Table.restored(saved, {"a": 1, "b": 1})) == owners(Table({"a": 1, "b": 1}))


def test_the_best_key_there_is_is_used() -> None:
    full = Sticky("h", "s", "t", "c", "r")
    keys = [full.key()]
    for name in full._fields[:-1]:
        full = full._replace(**{name: ""})
        keys.append(full.key())
    assert keys == ["header:h", "session:s", "tenant:t", "conversation:c", "request:r"]
    assert Sticky(session="x").key() != Sticky(tenant="x").key()


def test_a_conversation_is_known_by_its_first_user_message() -> None:
    first = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"})
    later = (*first, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "Bye"})
    other = (first[0], {"role": "user", "content": [{"type": "text", "text": "Hello"}]})
    assert conversation(ChatPrompt(first)) == conversation(ChatPrompt(later)) != ""
    assert conversation(ChatPrompt(first)) != conversation(ChatPrompt(other))
    assert conversation(ChatPrompt(first[:1])) == conversation(TextPrompt("Hello")) == ""


def test_another_salt_deals_anew() -> None:
    keys = [f"k{i}" for i in range(2000)]
    canary = [{k for k in keys if bucket(k, salt) < 1000} for salt in ("one", "two")]
    assert 0 < len(canary[0] & canary[1]) < 60


def test_some_tenants_have_weights_of_their_own() -> None:
    split = Split({"v1": 1, "v2": 0}, {"friends": {"v2": 1}})
    assert split.choose(Sticky(tenant="friends")) == "v2"
    assert split.choose(Sticky(tenant="others")) == "v1"
    split.reweigh({"v1": 0, "v2": 1}, {"wary": {"v1": 1}})
    assert [split.choose(Sticky(tenant=t)) for t in ("friends", "others", "wary")] == ["v2", "v2", "v1"]
    again = Split({"v1": 1})
    again.restore(json.loads(json.dumps(split.snapshot())), {"v1": 0, "v2": 1}, {"wary": {"v1": 1}})
    assert [again.choose(Sticky(tenant=t)) for t in ("friends", "others", "wary")] == ["v2", "v2", "v1"]


def test_a_tester_says_which() -> None:
    split = Split({"v1": 1, "v2": 0})
    assert split.choose(Sticky(request="r"), "v2") == "v2"
    with pytest.raises(BadRequest, match="v1, v2"):
        split.choose(Sticky(request="r"), "v3")


@pytest.mark.parametrize("weights", [{}, {"a": 0}, {"a": -1, "b": 2}, {"a": float("nan")}, {"a": float("inf")}])
def test_weights_that_make_no_sense_change_nothing(weights: dict[str, float]) -> None:
    split = Split({"a": 1, "b": 1})
    before = split.snapshot()
    with pytest.raises(ConfigError):
        split.reweigh(weights)
    with pytest.raises(ConfigError):
        split.reweigh({"a": 1}, {"t": weights})
    assert split.snapshot() == before
