"""A load on a server of OpenAI's API, from a process of its own: closed loop, fixed rate, or streams that are only held open.

    echo '{"host": ..., "port": ..., "kind": "closed", ...}' | python -P load.py

Fields of the task: `Task` below. One thread, connections kept alive, and an answer is looked at for nothing but its end, so that what
is measured costs far more than the measuring. A request's time runs from the moment at which it was due, so that a server that falls
behind shows it. Prints one JSON object. Any answer but a complete one with status 200 ends it with an error.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import uvloop

from camshaft.bench.processes import on_core_s

LIMIT_S = 600.0
WORD = b" w"  # each token of the fake server's answers begins so
RAMP_S = 0.5  # of a measurement, not counted: connections open, caches fill
OPENING = 50  # idle streams that are being opened at once


class Task(NamedTuple):
    host: str
    port: int
    kind: str  # closed, rate, idle
    body: str
    connections: int  # closed: as many requests at once; idle: streams. rate: grows as needed up to this
    seconds: float = 10.0
    rate: float = 0.0  # requests a second
    pids: tuple[int, ...] = ()  # whose processor time is read
    key: str = ""


class Connection(asyncio.Protocol):
    """One request at a time. `due` and the times taken are time.perf_counter() seconds."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._tail = b""
        self._head = b""
        self._stream = False
        self._left = 0  # bytes of a body with a length
        self.due = 0.0
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, due: float) -> None:
        self.due, self.busy = due, True
        self._tail = self._head = b""
        self.transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        if not self._head:
            data = self._tail + data
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found:
                self._tail = data
                return
            self._begin(head)
            data = rest
            self._tail = b""
        self._load.n_tokens += data.count(WORD)
        if self._stream:
            self._tail = (self._tail + data)[-16:]
            if self._tail.endswith(b"0\r\n\r\n"):
                self._end()
            elif data:
                self._load.heard(self)
        else:
            self._left -= len(data)
            if self._left <= 0:
                self._end()

    def _begin(self, head: bytes) -> None:
        self._head = head
        if b" 200 " not in head[:20]:
            self._load.fail(f"not an answer: {head[:300]!r}")
        lowered = head.lower()
        self._stream = b"transfer-encoding: chunked" in lowered
        if not self._stream:
            self._left = int(lowered.partition(b"content-length:")[2].split(b"\r\n")[0])

    def _end(self) -> None:
        self.busy = False
        self._load.done(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.busy:
            self._load.fail(f"the connection was closed within an answer ({exc})")


class Load:
    """Counts what ends between `begin_at` and `end_at`."""

    def __init__(self, task: Task) -> None:
        self.task = task
        auth = f"authorization: Bearer {task.key}\r\n" if task.key else ""
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {task.host}:{task.port}\r\n{auth}content-type: application/json\r\n"
        body = task.body.encode()
        self.request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self.n_tokens = 0
        self.begin_at = self.end_at = 0.0
        self.taken: list[float] = []
        self.free: deque[Connection] = deque()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard: asyncio.Semaphore | None = None
        self._n_open = 0
        self._all_free = asyncio.Event()

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(lambda: Connection(self), self.task.host, self.task.port)
        return connection

    def fail(self, why: str) -> None:
        if not self.over.done():
            self.over.set_exception(RuntimeError(why))

    def done(self, connection: Connection) -> None:
        now = time.perf_counter()
        if self.begin_at <= now <= self.end_at:
            self.taken.append(now - connection.due)
        if self.task.kind == "closed" and now < self.end_at:
            connection.send(now)
        else:
            self.free.append(connection)
            if len(self.free) == self._n_open:
                self._all_free.set()

    def heard(self, connection: Connection) -> None:
        if self._heard is not None and connection.due:
            connection.due = 0.0
            self._heard.release()

    async def closed(self) -> dict[str, Any]:
        """As many at once as there are connections, each followed by the next."""
        connections = [await self.connect() for _ in range(self.task.connections)]
        self.begin_at = time.perf_counter() + RAMP_S
        self.end_at = self.begin_at + self.task.seconds
        for connection in connections:
            connection.send(time.perf_counter())
        await asyncio.sleep(RAMP_S)
        before, used = self.n_tokens, on_core_s(self.task.pids)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.wait((self.over,), timeout=self.task.seconds)
        tokens, used = self.n_tokens - before, on_core_s(self.task.pids) - used
        if self.over.done():
            self.over.result()
        per_s = 1 / self.task.seconds
        if not tokens:
            raise RuntimeError("nothing was answered")
        # A slow proxy passes on tokens of many streams before the first of them ends.
        times = quantiles(self.taken) if self.taken else {}
        return {"rate": len(self.taken) * per_s, "tokens_s": tokens * per_s, "share": used * per_s, **times}

    async def at_rate(self) -> dict[str, Any]:
        """A request every 1/rate seconds, whether or not those before it are done."""
        task = self.task
        self.begin_at = time.perf_counter() + RAMP_S
        self.end_at = self.begin_at + task.seconds + LIMIT_S
        self.free.extend([await self.connect() for _ in range(8)])
        self._n_open, began = 8, time.perf_counter()
        for i in range(int((task.seconds + RAMP_S) * task.rate)):
            due = began + i / task.rate
            pause = due - time.perf_counter()
            if pause > 0:
                await asyncio.sleep(pause)
            if self.over.done():
                self.over.result()
            if not self.free:
                if self._n_open >= task.connections:
                    raise RuntimeError(f"{self._n_open} requests are open at {task.rate:.0f}/s: the server does not keep up")
                self.free.append(await self.connect())
                self._n_open += 1
            self._all_free.clear()
            self.free.pop().send(due)
        async with asyncio.timeout(LIMIT_S):
            await self._all_free.wait()
        return {"rate": len(self.taken) / task.seconds, **quantiles(self.taken)}

    async def idle(self) -> dict[str, Any]:
        """Streams that had their first token and get nothing more; the processor time of `pids` meanwhile."""
        task = self.task
        self._heard = asyncio.Semaphore(0)
        for i in range(0, task.connections, OPENING):
            some = [await self.connect() for _ in range(min(OPENING, task.connections - i))]
            for connection in some:
                connection.send(time.perf_counter())
            async with asyncio.timeout(LIMIT_S):
                for _ in some:
                    await self._heard.acquire()
        await asyncio.sleep(1.0)
        before, began = on_core_s(task.pids), time.perf_counter()
        await asyncio.sleep(task.seconds)
        used = on_core_s(task.pids) - before
        if self.over.done():
            self.over.result()
        return {"streams": task.connections, "share": used / (time.perf_counter() - began)}


def quantiles(taken: Sequence[float]) -> dict[str, float]:
    """By nearest rank, in milliseconds."""
    ranked = sorted(taken)
    if not ranked:
        raise RuntimeError("nothing was answered")
    return {name: ranked[min(len(ranked) - 1, int(q * len(ranked)))] * 1e3 for name, q in (("p50_ms", 0.5), ("p99_ms", 0.99))}


async def run(task: Task) -> dict[str, Any]:
    load = Load(task)
    cpu = time.process_time()
    work = {"closed": load.closed, "rate": load.at_rate, "idle": load.idle}[task.kind]
    found = await work()
    return found | {"client_cpu_s": time.process_time() - cpu}


def main() -> int:
    asked = json.load(sys.stdin)
    task = Task(**{**asked, "pids": tuple(asked.get("pids", ()))})
    sys.stdout.write(json.dumps(uvloop.run(run(task))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
