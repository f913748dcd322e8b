"""A pool of real worker processes under a crowd, while they are killed and replaced."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import cast

from camshaft.bench.processes import is_alive
from camshaft.cluster.counted import Counted
from camshaft.cluster.pool import Pool
from camshaft.cluster.remote import ProcessBackend
from camshaft.cluster.replica import Change, Seat
from camshaft.types import Delta, Event, Failed, Finished, Request, Resume, SamplingParams, TokenPrompt
from contract.upstream_contract import check_order
from worker_rig import PATIENT, gone, launcher, worker

QUICK = replace(PATIENT, backoff_first_s=0.05, crash_row=1000, crash_most=1000)
MOST = 60


def pid_of(pool: Pool, name: str) -> int:
    backend = pool.backend(name)
    assert isinstance(backend, Counted)
    process = backend._backend
    assert isinstance(process, ProcessBackend)
    return process.pid


async def all_ready(pool: Pool, n: int) -> None:
    async with asyncio.timeout(100):
        while sum(replica.state == "ready" for replica in pool.replicas) != n:  # noqa: ASYNC110 - several of them
            await asyncio.sleep(0.02)


async def test_a_killed_worker_comes_back_in_its_place_and_closing_leaves_nothing() -> None:
    changes: list[Change] = []
    pool = Pool("v", Seat(launcher(config=QUICK), QUICK, changes.append))
    pool.scale(2)
    await all_ready(pool, 2)
    first, second = (pid_of(pool, name) for name in ("v-1", "v-2"))
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(30):
        while not any(c.replica == "v-1" and c.new == "starting" and c.old == "ready" for c in changes):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await all_ready(pool, 2)
    assert pid_of(pool, "v-1") != first
    assert pid_of(pool, "v-2") == second
    new = await pool.restart("v-2")
    pids = [pid_of(pool, name) for name in ("v-1", new.name)]
    assert not is_alive(second)
    await pool.close()
    assert not any(is_alive(pid) for pid in pids)
    reasons = [c.reason for c in changes if (c.replica, c.old, c.new) == ("v-1", "ready", "starting")]
    assert len(reasons) == 1
    assert "SIGKILL" in reasons[0]


async def carried(pool: Pool, request: Request, dice: random.Random) -> list[Event]:
    """An answer, however many workers die under it. What each gave is put together as a gateway would."""
    seen: list[Event] = []
    while True:
        names = [replica.name for replica in pool.replicas if replica.state == "ready"]
        backend = pool.backend(dice.choice(names)) if names else None
        if backend is None:
            await asyncio.sleep(0.05)
            continue
        ids = tuple(i for e in seen if isinstance(e, Delta) for i in e.ids)
        n_chars = sum(len(e.text) for e in seen if isinstance(e, Delta))
        asked = Request(id=request.id, prompt=request.prompt, sampling=request.sampling, resume=Resume(ids, n_chars) if ids else None)
        events: list[Event] = []
        async with aclosing(cast(AsyncGenerator[Event, None], backend.stream(asked))) as stream:
            async for event in stream:
                events.append(event)
        check_order(events)
        seen += [event for event in events if isinstance(event, (Delta, Finished))]
        if isinstance(events[-1], Finished):
            return seen
        assert isinstance(events[-1], Failed)
        assert events[-1].error.status == 503, events[-1].error
        await asyncio.sleep(0.01)


def told(events: Sequence[Event]) -> tuple[str, tuple[int, ...], tuple[float | None, ...], str, int]:
    deltas = [e for e in events if isinstance(e, Delta)]
    end = events[-1]
    assert isinstance(end, Finished)
    return (
        "".join(d.text for d in deltas),
        tuple(i for d in deltas for i in d.ids),
        tuple(p.logprob for d in deltas for p in d.logprobs),
        end.reason,
        end.usage.n_output,
    )


async def test_a_crowd_sees_nothing_of_the_workers_that_die_under_it() -> None:
    """Text that comes twice, or never, or is counted twice, when a replica dies (gateway failures, row 14)."""
    dice = random.Random(5)
    pool = Pool("v", Seat(launcher("step_s=0.01", config=QUICK), QUICK, lambda change: None))
    pool.scale(2)
    await all_ready(pool, 2)
    requests = [
        Request(
            id=f"r{i}",
            prompt=TokenPrompt(tuple(dice.randrange(250) for _ in range(20))),
            sampling=SamplingParams(temperature=i % 2, seed=i, max_tokens=MOST, ignore_eos=True, logprobs=1, stop=("\x07",)),
        )
        for i in range(12)
    ]
    async with worker() as alone:
        wanted = [told([event async for event in alone.stream(request)]) for request in requests]
    crowd = asyncio.gather(*(carried(pool, request, dice) for request in requests))
    for _ in range(3):
        await asyncio.sleep(0.3)
        ready = [replica.name for replica in pool.replicas if replica.state == "ready"]
        if ready and not crowd.done():
            os.kill(pid_of(pool, dice.choice(ready)), signal.SIGKILL)
    async with asyncio.timeout(100):
        answers = await crowd
    assert [told(answer) for answer in answers] == wanted
    assert all(replica.n_streams == 0 for replica in pool.replicas)
    await pool.close()


async def test_a_stopped_worker_can_be_closed() -> None:
    async with worker(close_s=0.2) as backend:
        os.kill(backend.pid, signal.SIGSTOP)
        await backend.close()
        await gone(backend.pid)
