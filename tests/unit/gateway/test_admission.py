"""What is counted of a request comes out again, whatever becomes of it; and a refusal is a promise at every gate."""

from __future__ import annotations

import asyncio
import random

import pytest

from camshaft.clock import ManualClock
from camshaft.errors import CamshaftError, RateLimited
from camshaft.gateway.admission import Admission, Entry, Gates
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.limit import LimitConfig, Limiter
from camshaft.gateway.line import Line, LineConfig
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.policy import RouteConfig, make_policy
from camshaft.gateway.route import Lease, Router
from camshaft.gateway.size import Sizer
from camshaft.gateway.turnstile import Turnstile
from camshaft.types import Delta, Finished, ReplicaInfo, Request, SamplingParams, Started, TokenPrompt, Usage


class Rig:
    """One replica of `n_seqs` places behind the real gates, under a clock that is turned by hand."""

    def __init__(self, limits: LimitConfig, line: LineConfig | None = None, n_seqs: int = 100) -> None:
        self.clock = ManualClock(100.0)
        self.limiter = Limiter(limits)
        self.line = Line(line or LineConfig())
        config = RouteConfig(room_s=1000.0, slow_start_s=0)
        self.router = Router(make_policy(config), config, BreakerConfig(), random.Random(1))
        self.router.join("r", ReplicaInfo("x", 512, n_seqs, 10_000, 0, 16), 0.0)
        self.turnstile = Turnstile(self.line, self.router, self.clock)
        sizer = Sizer(lambda: 512, lambda prompt: 10)
        self.admission = Admission(Gates(self.limiter, self.line, self.turnstile, sizer, self.clock))

    def admit(self, id: str, n_prompt: int = 10, n_output: int = 10) -> Entry:
        sampling = SamplingParams(max_tokens=n_output)
        prompt = TokenPrompt((ord(id[0]),) * n_prompt)
        return self.admission.admit(
            Request(id=id, prompt=prompt, sampling=sampling, tenant="t", arrived_at=self.clock.now(), deadline_s=60.0)
        )

    async def lease(self, entry: Entry) -> Lease:
        return await asyncio.wait_for(self.turnstile.through(entry.waiting), 1.0)

    def left(self) -> float:
        return self.limiter.left("t", self.clock.now())[1]


async def test_what_the_server_counted_is_settled() -> None:
    """A foreign server's tokens are charged as it counted them, cached ones apart (gateway failures, row 10)"""
    rig = Rig(LimitConfig(tokens_per_minute=1000))
    entry = rig.admit("a")
    lease = await rig.lease(entry)
    for event in (Started(10, -1, 0.0), Delta("a", (), n_tokens=1), Finished("stop", Usage(13, 4, 7))):
        entry.books.see(event, lease)
    lease.close(Outcome.SUCCESS, rig.clock.now())
    assert rig.left() == pytest.approx(980)
    entry.books.close()
    entry.books.close()
    assert rig.left() == pytest.approx(1000 - (13 - 4 + 7))
    assert (len(rig.line), rig.line.n_running) == (0, 0)


async def test_what_never_began_costs_nothing() -> None:
    rig = Rig(LimitConfig(tokens_per_minute=1000))
    entry = rig.admit("a")
    assert rig.left() == pytest.approx(980)
    lease = await rig.lease(entry)
    lease.close(Outcome.NEUTRAL, rig.clock.now())
    entry.books.close()
    assert rig.left() == pytest.approx(1000)


async def test_one_refused_by_the_line_gives_its_reservation_back_and_is_let_in_when_it_was_told() -> None:
    rig = Rig(LimitConfig(tokens_per_minute=1000), LineConfig(max_requests=1, tenant_share=1.0), n_seqs=1)
    running, waiting = rig.admit("a"), rig.admit("b")
    lease = await rig.lease(running)
    with pytest.raises(CamshaftError) as refused:
        rig.admit("c")
    retry_s = refused.value.retry_after_s
    assert retry_s is not None
    running.books.see(Started(10, 0, 0.0), lease)
    lease.close(Outcome.SUCCESS, rig.clock.now())
    running.books.close()
    rig.turnstile.turn()
    next_lease = await rig.lease(waiting)
    rig.clock.advance(retry_s)
    rig.admit("c").books.close()
    next_lease.close(Outcome.SUCCESS, rig.clock.now())
    waiting.books.close()
    assert (len(rig.line), rig.line.n_running) == (0, 0)
    rig.limiter.check(rig.clock.now())


async def test_one_refused_by_a_limit_is_let_in_when_it_was_told() -> None:
    rig = Rig(LimitConfig(tokens_per_minute=60))
    entries = [rig.admit("a"), rig.admit("b"), rig.admit("c")]
    with pytest.raises(RateLimited) as refused:
        rig.admit("d")
    assert refused.value.retry_after_s is not None
    for entry in entries:
        lease = await rig.lease(entry)
        entry.books.see(Started(10, 0, 0.0), lease)
        entry.books.see(Delta("x", (1,) * 10), lease)
        lease.close(Outcome.SUCCESS, rig.clock.now())
        entry.books.close()
    rig.clock.advance(refused.value.retry_after_s)
    last = rig.admit("d")
    (await rig.lease(last)).close(Outcome.SUCCESS, rig.clock.now())
    last.books.close()
    assert rig.limiter.n_running("t") == 0
