"""A place in a pool: its states, their bounds, restarts, crash loops, drains."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from camshaft.cluster.replica import Replica
from camshaft.errors import ConfigError, ModelError, Unavailable
from camshaft.types import Event, Failed, Finished, Request, TokenPrompt
from replica_rig import Bench, settle

REQUEST = Request(id="r", prompt=TokenPrompt((1,)))


async def started(bench: Bench) -> Replica:
    replica = Replica("r0", bench.seat)
    replica.start()
    await settle()
    return replica


async def answer(replica: Replica) -> list[Event]:
    backend = replica.backend
    assert backend is not None
    return [event async for event in backend.stream(REQUEST)]


async def test_from_start_to_ready_and_closed() -> None:
    bench = Bench()
    replica = await started(bench)
    assert replica.backend is not None
    assert replica.backend.info.numerics_id == "stub"
    await replica.close()
    await replica.close()
    assert bench.states() == ["starting", "warming", "ready", "gone"]
    assert [(c.old, c.new) for c in bench.changes][:2] == [("gone", "starting"), ("starting", "warming")]
    assert replica.backend is None
    assert bench.launcher.made[0].n_closed == 1


async def test_a_crash_is_told_at_once_and_followed_by_another_start_after_a_rest() -> None:
    bench = Bench(backoff_first_s=2.0)
    replica = await started(bench)
    bench.launcher.made[0].died.set_result("it was killed by SIGKILL")
    await settle()
    assert (replica.state, replica.backend, replica.n_restarts) == ("starting", None, 1)
    assert "SIGKILL" in replica.reason
    assert "2.0 s" in replica.reason
    assert bench.launcher.made[0].n_closed == 1
    await bench.time.turn(1.9)
    assert bench.launcher.n_launches == 1
    await bench.time.turn(0.2)
    assert replica.state == "ready"
    assert bench.states() == ["starting", "warming", "ready", "starting", "warming", "ready"]
    await replica.close()


async def test_a_start_that_fails_is_tried_again_later_each_time() -> None:
    bench = Bench(Unavailable("no memory"), OSError("no processes left"), "ok", backoff_first_s=1.0)
    replica = await started(bench)
    assert "no memory" in replica.reason
    await bench.time.turn(1.0)
    assert "no processes left" in replica.reason
    assert replica.last_error == "OSError: no processes left"
    await bench.time.turn(1.0)
    assert replica.state == "starting"
    await bench.time.turn(1.0)
    assert (replica.state, replica.last_error) == ("ready", "")
    await replica.close()


async def test_a_crash_loop_stops_with_its_reason_until_somebody_restarts_it() -> None:
    bench = Bench(Unavailable("out of memory"), backoff_first_s=1.0, backoff_most_s=1.0, crash_row=4)
    replica = await started(bench)
    for _ in range(10):
        await bench.time.turn(1.0)
    assert replica.state == "gone"
    assert "4 crashes in a row" in replica.reason
    assert "out of memory" in replica.reason
    assert bench.launcher.n_launches == 4
    assert await replica.settled() == "gone"
    bench.launcher.plan = ["ok"]
    await replica.restart("by hand")
    await settle()
    assert replica.state == "ready"
    await replica.close()


async def test_what_somebody_else_runs_is_told_of_once_until_something_else_is_wrong_with_it() -> None:
    bench = Bench(*[Unavailable("no connection")] * 30, Unavailable("refused"), "ok", backoff_first_s=1.0, crash_row=3)
    replica = Replica("r0", bench.seat._replace(patient=True))
    replica.start()
    await settle()
    for _ in range(40):
        await bench.time.turn(10.0)
    assert (replica.state, bench.launcher.n_launches) == ("ready", 32)
    assert [c.reason.partition(";")[0] for c in bench.changes] == ["started", "no connection", "refused", "warm"]
    await replica.close()


@pytest.mark.parametrize("error", [ConfigError("no such file"), ModelError("damaged")])
async def test_what_the_next_try_would_find_too_is_not_tried_again(error: Exception) -> None:
    bench = Bench(error)
    replica = await started(bench)
    assert (replica.state, replica.reason) == ("gone", str(error))
    await bench.time.turn(100.0)
    assert bench.launcher.n_launches == 1


async def test_a_launcher_that_breaks_costs_one_try() -> None:
    bench = Bench(KeyError("a bug"), "ok")
    replica = await started(bench)
    assert "KeyError" in replica.reason
    await bench.time.turn(10.0)
    assert replica.state == "ready"
    await replica.close()


async def test_no_state_lasts_longer_than_its_bound() -> None:
    bench = Bench("hang", start_s=10.0, warm_s=5.0, close_s=1.0, backoff_first_s=1.0)
    replica = await started(bench)
    await bench.time.turn(10.9)
    assert (replica.state, bench.launcher.n_given_up) == ("starting", 0)
    await bench.time.turn(0.2)
    assert bench.launcher.n_given_up == 1
    assert "not loaded within 10 s" in replica.reason
    await bench.time.turn(1.0)
    bench.launcher.loaded.set()
    await settle()
    assert replica.state == "warming"
    await bench.time.turn(6.1)
    assert bench.launcher.n_given_up == 2
    assert "not warm within 5 s" in replica.reason
    await replica.close()


async def test_draining_takes_nothing_new_and_lets_streams_end() -> None:
    """A stream that is cut when its replica is no longer needed (gateway failures, row 19)."""
    bench = Bench()
    replica = await started(bench)
    running = asyncio.ensure_future(answer(replica))
    await settle()
    draining = asyncio.ensure_future(replica.drain("scaled in"))
    await settle()
    assert (replica.state, replica.n_streams) == ("draining", 1)
    late = await answer(replica)
    assert isinstance(late[-1], Failed)
    assert late[-1].error.code == "draining"
    bench.launcher.made[0].go.set()
    assert isinstance((await running)[-1], Finished)
    await draining
    assert (replica.state, replica.reason) == ("gone", "scaled in")
    assert bench.launcher.made[0].n_closed == 1


async def test_draining_has_an_end() -> None:
    bench = Bench(drain_s=30.0)
    replica = await started(bench)
    running = asyncio.ensure_future(answer(replica))
    await settle()
    draining = asyncio.ensure_future(replica.drain("scaled in"))
    await settle()
    await bench.time.turn(29.0)
    assert replica.state == "draining"
    await bench.time.turn(1.1)
    await draining
    assert replica.state == "gone"
    await running


async def test_one_that_is_restarted_while_it_drains_stays() -> None:
    bench = Bench()
    replica = await started(bench)
    running = asyncio.ensure_future(answer(replica))
    await settle()
    draining = asyncio.ensure_future(replica.drain("drained by hand"))
    await settle()
    await replica.restart("restarted by hand")
    await asyncio.gather(draining, running)
    await settle()
    assert (replica.state, bench.launcher.n_launches) == ("ready", 2)
    assert [made.n_closed for made in bench.launcher.made] == [1, 0]
    await replica.close()


async def test_nobody_returns_from_closing_before_everything_is_put_away() -> None:
    bench = Bench()
    replica = await started(bench)
    may_close = asyncio.Event()
    made = bench.launcher.made[0]
    close = made.close

    async def slow_close() -> None:
        await may_close.wait()
        await close()

    made.close = slow_close  # type: ignore[method-assign]
    closing = [asyncio.ensure_future(replica.close()) for _ in range(2)]
    await settle()
    closing[0].cancel()
    await settle()
    assert not closing[1].done()
    may_close.set()
    await closing[1]
    assert (replica.state, made.n_closed) == ("gone", 1)


async def test_one_that_dies_while_it_drains_is_not_started_again() -> None:
    bench = Bench()
    replica = await started(bench)
    running = asyncio.ensure_future(answer(replica))
    await settle()
    draining = asyncio.ensure_future(replica.drain("scaled in"))
    await settle()
    bench.launcher.made[0].died.set_result("killed")
    await settle()
    await draining
    await bench.time.turn(1000.0)
    assert (replica.state, bench.launcher.n_launches) == ("gone", 1)
    await running


@pytest.mark.parametrize("plan", ["hang", Unavailable("no")], ids=["starting", "resting"])
async def test_one_that_is_not_ready_is_gone_at_once(plan: str | Exception) -> None:
    bench = Bench(plan)
    replica = await started(bench)
    assert replica.state == "starting"
    await replica.drain("scaled in")
    await bench.time.turn(1000.0)
    assert (replica.state, bench.launcher.n_launches) == ("gone", 1)


async def test_the_count_of_streams_returns_to_zero_whoever_leaves_and_whatever_is_asked_meanwhile() -> None:
    """Counters that drift when clients leave (gateway failures, row 1), or that a health check resets (row 2)."""
    bench = Bench()
    replica = await started(bench)
    backend = replica.backend
    assert backend is not None
    for n_events in (0, 1):
        async with aclosing(backend.stream(REQUEST)) as stream:  # type: ignore[type-var]
            for _ in range(n_events):
                await anext(stream)
            assert replica.n_streams == n_events
            await backend.health()
            assert replica.n_streams == n_events
        assert replica.n_streams == 0
    task = asyncio.ensure_future(answer(replica))
    await settle()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (replica.n_streams, bench.launcher.made[0].n_open) == (0, 0)
    await replica.close()
