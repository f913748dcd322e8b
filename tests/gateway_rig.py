"""Real dispatch, line and router over engines whose runner only pretends, and that can be killed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from byte_codec import ByteCodec
from camshaft.clock import SystemClock
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.errors import ReplicaLost
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.dispatch import Dispatch, Move, Named, Policies
from camshaft.gateway.limit import LimitConfig, Limiter
from camshaft.gateway.line import Line, LineConfig
from camshaft.gateway.policy import RouteConfig, make_policy
from camshaft.gateway.retry import RetryBudget, RetryConfig
from camshaft.gateway.route import Job, Router
from camshaft.gateway.size import Sizer
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.types import Capacity, Event, Failed, Health, KVGroup, Load, ReplicaInfo, Request

CAPACITY = Capacity(vocab_size=260, max_model_len=512, block_size=16, n_blocks=513, groups=(KVGroup(1),), max_slots=8, max_tokens=512)


class Mortal:
    """A Backend over an engine of this process. `die` cuts its streams, as a killed process would."""

    def __init__(self, numerics_id: str = "fake", token_s: float = 0.0) -> None:
        options = FakeOptions(step_s=token_s, sleep=time.sleep, eos_id=256)
        self.engine = AsyncEngine(Parts(FakeRunner(CAPACITY, options), EngineConfig(default_deadline_s=30.0)), Speech(ByteCodec()))
        self.info = ReplicaInfo(numerics_id, CAPACITY.max_model_len, CAPACITY.max_slots, CAPACITY.max_tokens, 8192, 16)
        self.load = Load()
        self.asked: list[Request] = []
        self._dead = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.asked.append(request)
        # As over a socket: a replica counts from when it has the request.
        stream = self.engine.stream(msgspec.structs.replace(request, arrived_at=0.0))
        dying = asyncio.ensure_future(self._dead.wait())
        try:
            while True:
                coming = asyncio.ensure_future(anext(stream, None))
                await asyncio.wait((coming, dying), return_when=asyncio.FIRST_COMPLETED)
                if dying.done():
                    coming.cancel()
                    await asyncio.gather(coming, return_exceptions=True)
                    yield Failed(ReplicaLost("it died").info())
                    return
                event = coming.result()
                if event is None:
                    return
                yield event
        finally:
            dying.cancel()
            await stream.aclose()  # type: ignore[attr-defined]

    def die(self) -> None:
        self._dead.set()

    async def health(self) -> Health:
        return await self.engine.health()

    async def lost(self) -> str:
        await self._dead.wait()
        return "it died"

    async def metrics(self) -> bytes:
        return b""

    async def close(self) -> None:
        await self.engine.close()


class DispatchRig:
    """A version's door with replicas that are ready at once."""

    def __init__(self, line: LineConfig | None = None) -> None:
        self.clock = SystemClock()
        self.line = Line(line or LineConfig())
        self.router = Router(make_policy(RouteConfig()), RouteConfig(), BreakerConfig(), random.Random(1))
        self.backends: dict[str, Mortal] = {}
        self.moves: list[Move] = []
        named = Named("v1", 30.0, told=self.moves.append)
        policies = Policies(Limiter(LimitConfig()), self.line, self.router, RetryBudget(RetryConfig(), random.Random(1)))
        self.dispatch = Dispatch(named, policies, self.backends.get, Sizer(lambda: 512, lambda prompt: 1), self.clock)

    def add(self, name: str, backend: Mortal) -> Mortal:
        self.backends[name] = backend
        self.router.join(name, backend.info, self.clock.now())
        self.dispatch.turnstile.turn()
        return backend

    def kill(self, name: str) -> None:
        self.router.leave(name)
        self.backends[name].die()

    def is_at_rest(self) -> bool:
        """Whether nothing of any request is left."""
        return (
            not len(self.line)
            and not self.line.n_running
            and not self.dispatch.turnstile.n_returning
            and all(not candidate.n_running for candidate in self.router.candidates(Job(), self.clock.now()))
        )

    async def close(self) -> None:
        await self.dispatch.close()
        for backend in self.backends.values():
            await backend.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it, in bounded time."""
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110 - counters announce nothing
            await asyncio.sleep(0.001)
