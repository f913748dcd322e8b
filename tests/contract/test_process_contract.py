"""A worker process keeps the promises of every upstream; so does the place in a pool that holds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from camshaft.cluster.counted import Counted
from camshaft.types import Upstream
from contract.upstream_contract import CHECKS, check_all
from worker_rig import worker


@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
async def test_a_worker_keeps_each_promise(check: Callable[[Upstream], Awaitable[None]]) -> None:
    async with worker() as backend:
        await check(backend)


async def test_a_counted_worker_keeps_all_promises_and_its_count_returns_to_zero() -> None:
    """In-flight counters that a client who leaves makes drift (gateway failures, row 1)."""
    async with worker() as backend:
        counted = Counted("r0", backend)
        await check_all(counted)
        assert counted.n_streams == 0
