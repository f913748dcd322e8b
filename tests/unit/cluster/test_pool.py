"""The replicas of a version: how many, which go first, and one for another."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.cluster.backend import State
from camshaft.cluster.pool import Pool, plan
from camshaft.errors import BadRequest, Unavailable
from camshaft.types import Request, TokenPrompt
from replica_rig import Bench, settle

REQUEST = Request(id="r", prompt=TokenPrompt((1,)))
STATES: tuple[State, ...] = ("gone", "starting", "warming", "ready")


async def pool_of(bench: Bench, n: int) -> Pool:
    pool = Pool("m/v", bench.seat)
    pool.scale(n)
    await settle()
    return pool


def names(pool: Pool, state: State = "ready") -> list[str]:
    return [replica.name for replica in pool.replicas if replica.state == state]


def test_what_serves_nobody_goes_first_and_the_newest_of_those_that_serve() -> None:
    """A replica that serves is ended while another one is still coming up (gateway failures, row 17)."""
    states: dict[str, State] = {"a": "ready", "b": "starting", "c": "ready", "d": "warming", "e": "gone"}
    assert [plan(states, n)[1] for n in (4, 3, 2)] == [["e"], ["e", "b"], ["e", "b", "d"]]
    assert plan(states, 0)[1] == ["e", "b", "d", "c", "a"]


@given(st.lists(st.sampled_from(STATES), max_size=9), st.integers(0, 12))
def test_there_are_as_many_as_were_asked_for(drawn: list[State], n: int) -> None:
    """Those that are still starting count, or each decision would start as many again (gateway failures, row 17)."""
    states = {f"r{i}": state for i, state in enumerate(drawn)}
    n_start, surplus = plan(states, n)
    assert len(states) + n_start - len(surplus) == n
    assert n_start == 0 or surplus == []
    assert len(set(surplus)) == len(surplus)
    assert set(surplus) <= set(states)


async def test_scaling_up_and_down() -> None:
    bench = Bench()
    pool = await pool_of(bench, 3)
    assert names(pool) == ["m/v-1", "m/v-2", "m/v-3"]
    assert pool.backend("m/v-2") is not None
    assert pool.backend("m/v-9") is None
    pool.scale(1)
    await settle()
    assert names(pool) == ["m/v-1"]
    pool.scale(2)
    await settle()
    assert names(pool) == ["m/v-1", "m/v-4"], "a name is never used twice"
    await pool.close()
    assert pool.replicas == ()
    assert all(made.n_closed == 1 for made in bench.launcher.made)
    with pytest.raises(Unavailable):
        pool.scale(1)


async def test_scaling_in_lets_streams_end() -> None:
    """A stream that is cut when its replica is no longer needed (gateway failures, row 19)."""
    bench = Bench()
    pool = await pool_of(bench, 2)
    backend = pool.backend("m/v-2")
    assert backend is not None
    stream = backend.stream(REQUEST)
    await anext(stream)  # type: ignore[arg-type]
    pool.scale(1)
    await settle()
    assert names(pool, "draining") == ["m/v-2"]
    pool.scale(1)
    await settle()
    assert names(pool) == ["m/v-1"], "what drains already does not count"
    bench.launcher.made[1].go.set()
    assert len([event async for event in stream]) == 1
    await settle()
    assert [replica.name for replica in pool.replicas] == ["m/v-1"]
    await pool.close()


async def test_one_that_was_given_up_keeps_its_place() -> None:
    bench = Bench(Unavailable("no"), crash_row=1)
    pool = await pool_of(bench, 2)
    assert names(pool, "gone") == ["m/v-1", "m/v-2"]
    pool.scale(2)
    await settle()
    assert bench.launcher.n_launches == 2
    bench.launcher.plan = ["ok"]
    assert (await pool.restart("m/v-1")).name == "m/v-1"
    await settle()
    assert names(pool) == ["m/v-1"]
    pool.scale(1)
    await settle()
    assert names(pool) == ["m/v-1"]
    await pool.close()


async def test_a_drained_one_comes_back_when_it_is_restarted() -> None:
    bench = Bench()
    pool = await pool_of(bench, 1)
    await pool.drain("m/v-1")
    assert names(pool, "gone") == ["m/v-1"]
    await pool.restart("m/v-1")
    await settle()
    assert names(pool) == ["m/v-1"]
    await pool.close()


async def test_a_restart_has_the_new_one_ready_before_the_old_one_drains() -> None:
    bench = Bench()
    pool = await pool_of(bench, 1)
    new = await pool.restart("m/v-1")
    assert new.name == "m/v-2"
    assert names(pool) == ["m/v-2"]
    told = [(c.replica, c.new) for c in bench.changes]
    assert told.index(("m/v-2", "ready")) < told.index(("m/v-1", "draining"))
    await pool.close()


async def test_a_restart_that_fails_changes_nothing() -> None:
    bench = Bench("ok", Unavailable("no memory"), crash_row=1)
    pool = await pool_of(bench, 1)
    with pytest.raises(Unavailable, match=r"no memory.*m/v-1 goes on"):
        await pool.restart("m/v-1")
    assert [(replica.name, replica.state) for replica in pool.replicas] == [("m/v-1", "ready")]
    bench.launcher.plan = ["ok"]
    await pool.restart("m/v-1")
    assert names(pool) == ["m/v-3"]
    await pool.close()


async def test_a_restart_that_is_given_up_changes_nothing() -> None:
    bench = Bench("ok", "hang")
    pool = await pool_of(bench, 1)
    restarting = asyncio.ensure_future(pool.restart("m/v-1"))
    await settle()
    assert len(pool.replicas) == 2
    with pytest.raises(Unavailable, match="being replaced"):
        await pool.restart("m/v-1")
    pool.scale(1)
    await settle()
    assert len(pool.replicas) == 2, "the one that is being replaced does not count"
    restarting.cancel()
    await asyncio.gather(restarting, return_exceptions=True)
    assert [(replica.name, replica.state) for replica in pool.replicas] == [("m/v-1", "ready")]
    await pool.close()


@pytest.mark.parametrize("act", ["drain", "restart"])
async def test_an_unknown_name_is_answered_with_those_there_are(act: str) -> None:
    pool = await pool_of(Bench(), 1)
    with pytest.raises(BadRequest, match="it has m/v-1"):
        await (pool.drain if act == "drain" else pool.restart)("x")
    with pytest.raises(BadRequest):
        pool.scale(-1)
    await pool.close()


async def test_closing_ends_everything_whatever_it_is_doing() -> None:
    bench = Bench("ok", "ok", "hang")
    pool = await pool_of(bench, 3)
    backend = pool.backend("m/v-1")
    assert backend is not None
    stream = backend.stream(REQUEST)
    await anext(stream)  # type: ignore[arg-type]
    pool.scale(0)
    await settle()
    assert names(pool, "draining") == ["m/v-1"]
    await pool.close()
    await pool.close()
    assert all(made.n_closed == 1 for made in bench.launcher.made)
    assert bench.launcher.n_given_up == 1
    assert [event async for event in stream]
