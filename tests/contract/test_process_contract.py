"""A worker process keeps the promises of every upstream; so does the place in a pool that holds it."""

from __future__ import annotations

from camshaft.cluster.counted import Counted
from contract.upstream_contract import check_all
from worker_rig import worker


async def test_a_worker_keeps_all_promises() -> None:
    async with worker() as backend:
        await check_all(backend)


async def test_a_counted_worker_keeps_all_promises_and_its_count_returns_to_zero() -> None:
    """In-flight counters that a client who leaves makes drift (gateway failures, row 1)."""
    async with worker() as backend:
        counted = Counted("r0", backend)
        await check_all(counted)
        assert counted.n_streams == 0
