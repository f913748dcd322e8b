"""Real worker processes over the fake runner: everything of a replica but arithmetic."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import camshaft
from camshaft.bench.processes import is_alive
from camshaft.cluster.backend import State
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.process import ProcessLauncher
from camshaft.cluster.remote import ProcessBackend
from camshaft.cluster.settings import WorkerSettings
from camshaft.types import Event, Request

# What a test wants of the worker is the name of its model: a few words of `key=value`.
PROGRAM = """
import sys, time, uvloop
from byte_codec import ByteCodec
from camshaft.cluster.settings import read_settings
from camshaft.cluster.worker import EngineSource, work
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.errors import ModelError
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.types import Capacity, KVGroup

def load(settings):
    told = dict(word.split("=") for word in settings.model.split())
    if "say" in told:
        print(told["say"], file=sys.stderr, flush=True)
    if "fail" in told:
        raise ModelError(told["fail"])
    if "exit" in told:
        import os
        os._exit(int(told["exit"]))
    time.sleep(float(told.get("load_s", "0")))
    capacity = Capacity(260, 1024, 8, 257, (KVGroup(1),), 8, 64)
    options = FakeOptions(step_s=float(told.get("step_s", "0")), sleep=time.sleep)
    return EngineSource(AsyncEngine(Parts(FakeRunner(capacity, options), settings.engine), Speech(ByteCodec())))

settings = read_settings(0)
sys.exit(uvloop.run(work(settings, load)))
"""
_PATHS = [str(Path(camshaft.__file__).parents[1]), str(Path(__file__).parent)]
COMMAND = (sys.executable, "-P", "-c", f"import sys; sys.path[:0] = {_PATHS!r}\n{PROGRAM}")
PATIENT = ReplicaConfig(start_s=90.0, warm_s=90.0, close_s=5.0, ping_s=0.05, stall_s=30.0)


def launcher(model: str = "", config: ReplicaConfig = PATIENT, command: tuple[str, ...] = COMMAND, **settings: object) -> ProcessLauncher:
    return ProcessLauncher(WorkerSettings(model=model, drain_s=config.drain_s, **settings), config, command=command)  # type: ignore[arg-type]


@asynccontextmanager
async def worker(model: str = "", told: Callable[[State], None] = lambda state: None, **config: float) -> AsyncIterator[ProcessBackend]:
    """A worker that is ready. Ends with the block, and fails if anything of it is left."""
    backend = await launcher(model, replace(PATIENT, **config)).launch("r0", told)
    try:
        yield backend
    finally:
        await backend.close()
        assert not is_alive(backend.pid)


async def gone(pid: int) -> None:
    """Returns when a process has ended, in bounded time."""
    async with asyncio.timeout(30):
        while is_alive(pid):  # noqa: ASYNC110 - it is no child of ours, so nobody announces its end
            await asyncio.sleep(0.01)


async def collect(backend: ProcessBackend, request: Request) -> list[Event]:
    async with asyncio.timeout(60):
        return [event async for event in backend.stream(request)]
