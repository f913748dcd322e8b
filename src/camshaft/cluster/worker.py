"""Worker: a process that loads a model and serves it to the gateway that started it. It dies with that gateway, however it went."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from time import monotonic, process_time
from typing import TYPE_CHECKING

import msgspec

from camshaft.cluster import wire
from camshaft.cluster.host import Host, Source
from camshaft.cluster.meeting import is_ours, join
from camshaft.cluster.settings import WorkerSettings
from camshaft.errors import CamshaftError, ConfigError, from_info
from camshaft.types import Event, Failed, Load, ReplicaInfo, Request, SamplingParams, TokenPrompt

if TYPE_CHECKING:
    from camshaft.engine.async_engine import AsyncEngine

_PR_SET_PDEATHSIG = 1
_WARM_TOKENS = 32
_LAST_EVENTS_S = 1.0
_SHARE_S = 0.5  # over less, a share of time is noise


def tie_to_parent(settings: WorkerSettings, fd: int) -> None:
    """From now on this process ends with its parent, also in the middle of a call that holds Python's lock. Call it once connected."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != settings.parent:  # it died before that
        os._exit(1)
    threading.Thread(target=_end_with, args=(fd,), name="camshaft-parent", daemon=True).start()


def _end_with(fd: int) -> None:
    """Where the system has no such signal, and where another thread of the parent started us: the pipe ends."""
    while os.read(fd, 4096):
        pass
    os._exit(1)


class EngineSource:
    """An engine as a worker serves it."""

    def __init__(self, engine: AsyncEngine, n_cores: int = 1) -> None:
        self._engine = engine
        self._info = info_of(engine)
        self._n_cores = n_cores
        self._seen = (monotonic(), process_time())
        self._share = 0.0

    @classmethod
    def load_model(cls, settings: WorkerSettings) -> EngineSource:
        """Blocks for as long as that takes. Raises DownloadError, ModelError or ConfigError."""
        # Imported here, because a worker ties itself to its parent before it takes its time.
        from camshaft._native import usable_cores
        from camshaft.engine.async_engine import AsyncEngine
        from camshaft.observe.metrics import Metrics

        engine = AsyncEngine.from_model(settings.model, settings.engine, Metrics().engine(settings.public_name or settings.model))
        return cls(engine, settings.engine.threads or usable_cores())

    @property
    def info(self) -> ReplicaInfo:
        return self._info

    def batches(self, request: Request) -> AsyncGenerator[tuple[Event, ...], None]:
        return self._engine.batches(request)

    def load(self) -> tuple[Load, float]:
        engine = self._engine.engine
        health, pool = engine.health(), engine.pool
        usage = pool.n_in_use / pool.n_usable
        return Load(running=health.running, waiting=health.waiting, kv_usage=usage, utilisation=self._utilisation()), engine.step_s

    def _utilisation(self) -> float:
        """The share of its cores that this process has had of late."""
        (then, had), (now, has) = self._seen, (monotonic(), process_time())
        if now - then >= _SHARE_S:
            self._seen = now, has
            self._share = min(1.0, (has - had) / (now - then) / self._n_cores)
        return self._share

    def metrics(self) -> bytes:
        return self._engine.engine.metrics.metrics.render()

    async def close(self) -> None:
        await self._engine.close()


def info_of(engine: AsyncEngine) -> ReplicaInfo:
    """What a replica over this engine says of itself."""
    limits, capacity = engine.engine.limits, engine.capacity
    return ReplicaInfo(
        numerics_id=engine.numerics_id,
        max_model_len=limits.max_model_len,
        max_num_seqs=limits.max_seqs,
        max_num_batched_tokens=limits.max_tokens,
        kv_tokens=engine.engine.pool.n_usable // len(capacity.groups) * capacity.block_size,
        block_size=capacity.block_size,
    )


async def warm(source: Source, longest_s: float) -> None:
    """A real prefill and decode. Raises what that failed with."""
    sampling = SamplingParams(temperature=0, max_tokens=2, min_tokens=2)
    n = max(1, min(_WARM_TOKENS, source.info.max_model_len - 2))
    # A salt of its own: nobody finds this prefix.
    request = Request(id="warm-up", prompt=TokenPrompt((0,) * n), sampling=sampling, cache_salt=f"warm-up {os.urandom(8).hex()}")
    request = msgspec.structs.replace(request, deadline_s=longest_s)
    async for batch in source.batches(request):
        for event in batch:
            if isinstance(event, Failed):
                raise from_info(event.error)


async def work(settings: WorkerSettings, load: Callable[[WorkerSettings], Source], fd: int = 0) -> int:
    """The life of a worker whose settings are read. `load` runs in a thread. Returns the exit status."""
    sock = join(Path(settings.socket))
    tie_to_parent(settings, fd)
    if not is_ours(sock):
        raise ConfigError("the gateway's socket belongs to another user")
    sock.setblocking(False)
    host = Host()
    await host.link.open(sock)
    stop = host.over
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    host.link.send(wire.Hello(wire.VERSION, settings.token))
    loading = asyncio.ensure_future(_load(host, settings, load))
    source: Source | None = None
    try:
        source = await _first(loading, stop, told)
        if source is not None:
            host.serve(source)
            await _either(stop, told)
            if told.is_set():
                await host.drain(settings.drain_s)
    except CamshaftError as error:
        host.link.send(wire.Bye(error.info()))
        sys.stderr.write(f"{error.message}\n")
        return 1
    finally:
        if source is not None:
            await source.close()
            await host.emptied(_LAST_EVENTS_S)  # the streams that this ended say so
        host.link.close()
        loading.cancel()
    return 0


async def _load(host: Host, settings: WorkerSettings, load: Callable[[WorkerSettings], Source]) -> Source:
    source = await asyncio.to_thread(load, settings)
    host.link.send(wire.Warming())
    await warm(source, settings.warm_s)
    return source


async def _first(loading: asyncio.Future[Source], stop: asyncio.Event, told: asyncio.Event) -> Source | None:
    """What was loaded; None where it is to stop before that."""
    waiting = asyncio.ensure_future(_either(stop, told))
    await asyncio.wait((loading, waiting), return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not loading.done():
        os._exit(0)  # the thread that loads cannot be stopped, and there is nothing yet to put away
    return loading.result()


async def _either(one: asyncio.Event, other: asyncio.Event) -> None:
    tasks = [asyncio.ensure_future(event.wait()) for event in (one, other)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
