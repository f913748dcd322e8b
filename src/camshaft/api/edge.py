"""What the handlers of one server share: the models, the limits, and who is inside right now."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from camshaft.api.call import Call
from camshaft.api.directory import Caller, Directory
from camshaft.api.served import ServedModel
from camshaft.clock import SystemClock
from camshaft.config import ServerConfig
from camshaft.errors import Draining, Overloaded
from camshaft.observe.merge import Page
from camshaft.observe.metrics import EngineMetrics, Metrics
from camshaft.observe.threads import name_thread
from camshaft.schema.decode import Unknown
from camshaft.types import Clock

T = TypeVar("T")

# Above this, parsing leaves the event loop; below it, the hop costs more than the work.
OFF_LOOP_BYTES = 65_536
LAST_WORDS_S = 2.0  # for error events to reach their clients when a drain runs out of time


class Edge:
    """Owned by the app; closed with it."""

    def __init__(self, directory: Directory, config: ServerConfig, metrics: Metrics) -> None:
        self.directory = directory
        self.config = config
        self.metrics = metrics
        self.clock: Clock = SystemClock()
        self.unknown: Unknown = "reject"
        self.reconfigure(config)
        self.more_metrics: Callable[[], Awaitable[Sequence[Page]]] | None = None  # of what stands behind this server
        self.draining = False
        self._calls: set[Call] = set()
        self._empty = asyncio.Event()
        self._empty.set()
        self._patience: asyncio.Timeout | None = None  # of a drain
        self._engines: dict[str, EngineMetrics] = {}
        self._pool = ThreadPoolExecutor(2, "camshaft-edge", name_thread, ("edge",))

    def model(self, name: str | None, call: Call, session: str = "", opening: str = "") -> ServedModel:
        """Who answers this call; without a name, the default. Raises UnknownModel and Forbidden."""
        caller = Caller(call.tenant, call.session or session, call.version, opening, call.id)
        return self.directory.model(name, caller, call.passed)

    def reconfigure(self, config: ServerConfig) -> None:
        """Bounds and habits for the calls to come. Where it listens stays as it is."""
        self.config = config
        self.unknown = "ignore" if config.unknown_fields == "ignore" else "reject"

    def engine_metrics(self, model: str) -> EngineMetrics:
        """The series of a model that is served."""
        found = self._engines.get(model)
        if found is None:
            found = self._engines[model] = self.metrics.engine(model)
        return found

    @contextmanager
    def admitted(self, call: Call) -> Iterator[None]:
        """Counts a call that asks for work. Raises Overloaded above the limit and Draining when the server is on its way out."""
        if self.draining:
            raise Draining("this server is shutting down; ask another one", retry_after_s=1.0)
        if len(self._calls) >= self.config.max_concurrent_requests:
            raise Overloaded(f"{len(self._calls)} requests are inside, which is the limit; try again shortly", retry_after_s=1.0)
        self._calls.add(call)
        self._empty.clear()
        try:
            yield
        finally:
            self._calls.discard(call)
            if not self._calls:
                self._empty.set()

    @property
    def n_inside(self) -> int:
        return len(self._calls)

    async def off_loop(self, size: int, work: Callable[[], T]) -> T:
        """`work()`, in a thread when its input of `size` bytes would hold the event loop up."""
        if size <= OFF_LOOP_BYTES:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def drain(self, limit_s: float) -> None:
        """Take nothing new, let what runs finish for `limit_s`, then end the rest with an error of their own."""
        self.draining = True
        await self._emptied(limit_s)
        for call in list(self._calls):
            call.end(Draining("this server shut down before the answer was complete; ask again", retry_after_s=1.0))
        await self._emptied(LAST_WORDS_S)

    def hurry(self) -> None:
        """Let what runs finish no longer: a drain under way goes on to its end."""
        if self._patience is not None and not self._patience.expired():
            self._patience.reschedule(asyncio.get_running_loop().time())

    async def _emptied(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s) as self._patience:
                await self._empty.wait()
        except TimeoutError:
            return
        finally:
            self._patience = None

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
