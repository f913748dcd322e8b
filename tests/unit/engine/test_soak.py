"""Many clients for a while: random lengths, leavers and bad requests. Every request ends once, and nothing is left behind."""

from __future__ import annotations

import asyncio
import gc
import random
import time

import psutil
import pytest

from byte_codec import ByteCodec
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.types import Capacity, Failed, Finished, KVGroup, Request, SamplingParams, TextPrompt

CLIENT_ERRORS = {"invalid_request_error", "context_length_exceeded", "invalid_grammar", "deadline_exceeded", "overloaded"}


class Tally:
    def __init__(self) -> None:
        self.ended = self.left = self.refused = 0
        self.wrong: list[object] = []


async def client(upstream: AsyncEngine, dice: random.Random, until: float, tally: Tally) -> None:
    while time.monotonic() < until:
        params = SamplingParams(
            temperature=dice.choice([0.0, 1.0, -1.0 if dice.random() < 0.1 else 0.5]),
            max_tokens=dice.choice([1, 5, 30, 80]),
            stop=dice.choice([(), ("a",), ("zz", "q")]),
            logprobs=dice.choice([None, None, 2]),
        )
        prompt = "" if dice.random() < 0.02 else "shared beginning " * dice.randint(0, 4) + "x" * dice.choice([1, 20, 200, 2000])
        request = Request(
            id="c",
            prompt=TextPrompt(prompt),
            sampling=params,
            priority=dice.randint(0, 1),
            session=dice.choice(["", f"s{dice.randrange(50)}"]),
            deadline_s=dice.choice([None, None, 0.05]),
        )
        leaves_after = dice.choice([None, None, None, 1, 3])
        stream = upstream.stream(request)
        n_terminal = n = 0
        async for event in stream:
            n += 1
            if isinstance(event, (Finished, Failed)):
                n_terminal += 1
                if isinstance(event, Failed) and event.error.code not in CLIENT_ERRORS:
                    tally.wrong.append(event.error)
            elif n == leaves_after:
                break
        await stream.aclose()  # type: ignore[attr-defined]
        if n_terminal > 1 or (n_terminal == 0 and n != leaves_after):
            tally.wrong.append((n_terminal, n))
        tally.ended += n_terminal
        tally.left += n_terminal == 0


async def load(seconds: float, n_clients: int) -> tuple[Tally, int]:
    """The tally, and how much resident memory grew over the last three quarters."""
    capacity = Capacity(260, 1024, 16, 257, (KVGroup(1),), 32, 256)
    runner = FakeRunner(capacity, FakeOptions(step_s=0.001, sleep=time.sleep, eos_id=256))
    upstream = AsyncEngine(Parts(runner, EngineConfig(max_queued_requests=200)), Speech(ByteCodec()))
    tally = Tally()
    began = time.monotonic()
    clients = [asyncio.ensure_future(client(upstream, random.Random(i), began + seconds, tally)) for i in range(n_clients)]
    await asyncio.sleep(seconds / 4)
    gc.collect()
    before = psutil.Process().memory_info().rss
    await asyncio.gather(*clients)
    gc.collect()
    grown = psutil.Process().memory_info().rss - before
    async with asyncio.timeout(10):
        while (await upstream.health()).running:  # noqa: ASYNC110 - health is asked for, nobody announces it
            await asyncio.sleep(0.01)
    upstream.engine.check()
    assert not upstream.engine.ask(lambda loop: loop.jobs)
    await upstream.close()
    return tally, grown


async def test_a_short_load() -> None:
    tally, _ = await load(1.5, 48)
    assert not tally.wrong, tally.wrong[:3]
    assert tally.ended > 50
    assert tally.left > 5


@pytest.mark.slow
async def test_a_long_load_leaves_no_memory_behind() -> None:
    tally, grown = await load(60.0, 256)
    assert not tally.wrong, tally.wrong[:3]
    assert tally.ended > 1000
    assert grown < 5_000_000
