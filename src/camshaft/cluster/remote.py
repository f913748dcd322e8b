"""ProcessBackend: a worker, as the gateway sees it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, NamedTuple, TypeVar

import msgspec

from camshaft.cluster import wire
from camshaft.cluster.child import Child
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.link import Link
from camshaft.cluster.meeting import is_ours
from camshaft.cluster.silence import Silence
from camshaft.cluster.streams import Streams
from camshaft.errors import CamshaftError, Draining, ReplicaLost, Unavailable, from_info
from camshaft.types import Clock, ErrorInfo, Event, Failed, Finished, Health, Load, ReplicaInfo, Request

log = logging.getLogger(__name__)
T = TypeVar("T")

_ANSWER_S = 2.0  # longest wait for health and metrics
_LAST_WORDS_S = 2.0  # a process whose connection is gone is about to end; how it ended is worth that much of a wait


class Rules(NamedTuple):
    """`longest_s`: for a request that has no deadline of its own."""

    config: ReplicaConfig
    longest_s: float
    clock: Clock


class _Start:
    """How far a worker has come."""

    def __init__(self) -> None:
        self.token = ""
        self.greeted = False
        self.loaded = asyncio.Event()
        self.warm = asyncio.Event()
        self.info = ReplicaInfo()
        self.error: ErrorInfo | None = None  # what it said was wrong

    def hello(self, message: wire.Hello) -> None:
        if message.version != wire.VERSION:
            raise wire.WireError(f"it speaks version {message.version} of it, and this is version {wire.VERSION}; restart the gateway")
        if message.token != self.token:
            raise wire.WireError("it is not the worker that was started")
        self.greeted = True


class ProcessBackend:
    """Implements Backend. Made by ProcessLauncher; event loop thread only."""

    def __init__(self, name: str, child: Child, rules: Rules) -> None:
        self._name = name
        self._child = child
        self._rules = rules
        self._start = _Start()
        self._link: Link[wire.FromWorker] = Link(wire.FROM_WORKER, self._heard, self._lose)
        self._load = Load()
        self._streams = Streams()
        self._questions: dict[int, asyncio.Future[bytes]] = {}
        self._n_questions = 0
        self._silence = Silence(rules.config.ping_s, rules.config.stall_s, rules.clock.now())
        self._refusal: CamshaftError | None = None  # why nothing new is taken
        self._why = ""  # it was given up, where it did not end by itself
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # how it was lost
        self._tasks = [asyncio.ensure_future(self._see_end())]
        self._closing: asyncio.Future[None] | None = None

    # --------------------------------------------------------------------------------------------------------- starting

    @property
    def is_loaded(self) -> bool:
        return self._start.loaded.is_set()

    async def meet(self, listener: socket.socket, token: str) -> None:
        """Returns when it has connected and loaded its model. Raises what it says is wrong, or Unavailable."""
        self._start.token = token
        await self._link.open(await self._unless_lost(_accept(listener)))
        await self._unless_lost(self._start.loaded.wait())

    async def ready(self) -> None:
        """Returns when it is warm."""
        await self._unless_lost(self._start.warm.wait())
        self._tasks.append(asyncio.ensure_future(self._watch()))

    async def _unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._ended), return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
        finally:
            task.cancel()
        if self._start.error is not None:
            raise from_info(self._start.error)
        raise Unavailable(f"{self._name} did not start: {self._ended.result()}")

    # ---------------------------------------------------------------------------------------------------------- Backend

    @property
    def info(self) -> ReplicaInfo:
        return self._start.info

    @property
    def load(self) -> Load:
        return self._load

    @property
    def pid(self) -> int:
        return self._child.pid

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        await self._link.writable()  # one that reads nothing is told nothing, and lost soon
        try:
            if self._refusal is not None:
                raise self._refusal
            request = wire.relative(request, self._rules.clock.now())
            frame = wire.ask(self._streams.next, request)
        except CamshaftError as error:
            await asyncio.sleep(0)  # whoever tries again at once must not keep the event loop from hearing how this one ended
            yield Failed(error.info())
            return
        longest_s = self._rules.longest_s
        stream = self._streams.open(request.limit_s(longest_s))
        self._link.send_frame(frame)
        try:
            over = False
            while not over:
                event = await stream.next()
                over = isinstance(event, (Finished, Failed))
                yield event
        finally:
            if self._streams.close(stream):
                self._link.send(wire.Cancel(stream.number))

    async def health(self) -> Health:
        """As the worker sees it, asked now. One that does not answer in time is not ready."""
        if self._refusal is None:
            answer = await self._ask(wire.Ping)
        if self._refusal is not None:
            return Health(False, len(self._streams), 0, self._refusal.message)
        if answer is None:
            return Health(False, len(self._streams), 0, f"no answer within {_ANSWER_S:g} s")
        return Health(True, self._load.running, self._load.waiting)

    async def lost(self) -> str:
        return await asyncio.shield(self._ended)

    async def metrics(self) -> bytes:
        return (await self._ask(wire.AskMetrics) or b"") if self._refusal is None else b""

    async def close(self) -> None:
        await self._close(self._rules.config.close_s)

    async def kill(self) -> None:
        """Close it without waiting for anything."""
        self._child.send(signal.SIGKILL)
        await self._close(0.0)

    async def _close(self, patience_s: float) -> None:
        if self._closing is None:
            self._refuse(ReplicaLost(f"{self._name} was stopped"))
            self._closing = asyncio.ensure_future(self._put_away(patience_s))
        await asyncio.shield(self._closing)

    async def _put_away(self, patience_s: float) -> None:
        self._link.send(wire.Bye())
        await self._child.close(patience_s)
        self._link.abort("it was stopped")
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ----------------------------------------------------------------------------------------------------------- inside

    def _heard(self, message: wire.FromWorker) -> None:
        self._silence.heard()
        if not self._start.greeted and not isinstance(message, wire.Hello):
            raise wire.WireError(f"it began with {type(message).__name__}")
        match message:
            case wire.Events():
                self._streams.heard(message.stream, message.events)
            case wire.Pong():
                self._load = msgspec.structs.replace(message.load, at=self._rules.clock.now())
                self._answered(message.number, b"")
                if message.step_s > self._rules.config.step_s:
                    self._lose(f"one step has taken {message.step_s:.0f} s")
            case wire.MetricsText():
                self._answered(message.number, message.text)
            case wire.Hello():
                self._start.hello(message)
            case wire.Warming():
                self._start.loaded.set()
            case wire.Ready():
                self._start.info = message.info
                self._start.warm.set()
            case wire.Bye():
                self._start.error = message.error
                self._refusal = self._refusal or Draining(f"{self._name} is shutting down")

    async def _ask(self, question: Callable[[int], wire.ToWorker]) -> bytes | None:
        """The answer; None where there is none in time."""
        self._n_questions += 1
        number = self._n_questions
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        self._link.send(question(number))
        try:
            async with asyncio.timeout(_ANSWER_S):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._questions[number]

    def _answered(self, number: int, answer: bytes) -> None:
        question = self._questions.get(number)
        if question is not None and not question.done():
            question.set_result(answer)

    async def _watch(self) -> None:
        """Ask again and again whether it is alive."""
        config, clock = self._rules.config, self._rules.clock
        self._silence = Silence(config.ping_s, config.stall_s, clock.now())
        while not self._silence.tick(clock.now()):
            self._n_questions += 1
            self._link.send(wire.Ping(self._n_questions))
            await asyncio.sleep(config.ping_s)
        self._lose(f"it was silent for {config.stall_s:g} s")

    async def _see_end(self) -> None:
        how = await self._child.exited()
        self._lose("")
        if self._closing is None:
            words = self._start.error.message if self._start.error is not None else str(self._child.tail)
            why = self._why or how
            self._ended.set_result(f"{why}; it said: {words}" if words else why)

    def _lose(self, why: str) -> None:
        """Its streams end at once; `lost` tells of it once the process is dead. `why` is "" where the process itself went."""
        if self._closing is not None or isinstance(self._refusal, ReplicaLost):
            return
        self._why = why
        self._refuse(ReplicaLost(f"{self._name} was lost: {why or 'it ended'}"))
        self._link.abort(why)
        if why:
            self._child.send(signal.SIGKILL)  # a stopped one obeys nothing else
        else:
            asyncio.get_running_loop().call_later(_LAST_WORDS_S, self._child.send, signal.SIGKILL)

    def _refuse(self, error: CamshaftError) -> None:
        self._refusal = error
        self._streams.end_all(error)
        for question in self._questions.values():
            if not question.done():
                question.set_result(b"")


async def _accept(listener: socket.socket) -> socket.socket:
    """The first connection of a process of our own user."""
    loop = asyncio.get_running_loop()
    while True:
        sock, _ = await loop.sock_accept(listener)
        if is_ours(sock):
            return sock
        sock.close()
