"""The engine keeps the contract of an upstream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from byte_codec import ByteCodec
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.runners.fake import FakeRunner
from camshaft.types import Capacity, KVGroup, Upstream
from contract.upstream_contract import CHECKS, check_all


def engine(groups: tuple[KVGroup, ...] = (KVGroup(1),)) -> AsyncEngine:
    capacity = Capacity(260, 1024, 8, 257, groups, 8, 64)
    return AsyncEngine(Parts(FakeRunner(capacity), EngineConfig()), Speech(ByteCodec()))


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
async def test_the_engine_keeps_each_promise(check: Callable[[Upstream], Awaitable[None]]) -> None:
    upstream = engine()
    try:
        await check(upstream)
        if upstream._engine.health().ready:
            upstream.engine.check()
    finally:
        await upstream.close()


async def test_the_engine_keeps_all_promises_with_windows() -> None:
    await check_all(engine((KVGroup(1), KVGroup(1, window=20))))
