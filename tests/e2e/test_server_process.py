"""The server as a process: signals, sockets, and many clients that behave badly at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import camshaft
from camshaft.api.listener import bind
from camshaft.bench.sse_client import Reply, Target, connected, post
from camshaft.errors import ConfigError
from http_server import server
from served_fake import FakeService

PROGRAM = """
import uvloop
from camshaft.api.server import serve
from camshaft.config import ServerConfig
from served_fake import FakeService

async def main():
    service = FakeService(lambda prompt: b"tick " * 16, token_s=0.005)
    try:
        await serve(service.app, ServerConfig(port=0, drain_s=DRAIN), lambda url: print(url, flush=True))
    finally:
        await service.engine.close()

uvloop.run(main())
"""
STREAM = json.dumps({"messages": [{"role": "user", "content": "x"}], "stream": True}).encode()
PATH = "/v1/chat/completions"


@contextmanager
def process(drain_s: float) -> Iterator[tuple[subprocess.Popen[str], Target]]:
    path = os.pathsep.join((str(Path(__file__).parents[1]), str(Path(camshaft.__file__).parents[1])))
    command = [sys.executable, "-c", PROGRAM.replace("DRAIN", str(drain_s))]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})
    try:
        assert child.stdout is not None
        url = child.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), child.communicate(timeout=5)
        yield child, Target("127.0.0.1", int(url.rpartition(":")[2]))
    finally:
        child.kill()
        child.communicate()


async def first_bytes_then(target: Target, child: subprocess.Popen[str], signals: list[signal.Signals]) -> Reply:
    """A stream's reply, with the signals sent while it runs."""
    running = asyncio.ensure_future(post(target, PATH, STREAM, deadline_s=20))
    await asyncio.sleep(0.1)
    assert not running.done()
    for number in signals:
        child.send_signal(number)
        await asyncio.sleep(0.02)
    return await running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_streams_finish_and_the_process_ends_cleanly(number: signal.Signals) -> None:
    with process(drain_s=20) as (child, target):
        reply = await first_bytes_then(target, child, [number])
        code = child.wait(10)
        stderr = child.stderr.read() if child.stderr is not None else ""
    text = "".join(json.loads(e.data)["choices"][0]["delta"].get("content", "") for e in reply.events[:-1])
    assert text == "tick " * 16
    assert reply.events[-1].data == "[DONE]"
    assert (code, stderr) == (0, "")


async def test_streams_that_outlast_the_drain_end_with_its_error() -> None:
    with process(drain_s=0.05) as (child, target):
        reply = await first_bytes_then(target, child, [signal.SIGTERM])
        code = child.wait(10)
    assert json.loads(reply.events[-2].data)["error"]["code"] == "draining"
    assert reply.events[-1].data == "[DONE]"
    assert code == 0


async def test_a_second_signal_waits_for_no_answer_and_each_ends_with_an_error() -> None:
    with process(drain_s=60) as (child, target):
        reply = await first_bytes_then(target, child, [signal.SIGINT, signal.SIGINT])
        code = child.wait(10)
        stderr = child.stderr.read() if child.stderr is not None else ""
    assert json.loads(reply.events[-2].data)["error"]["code"] == "draining"
    assert reply.events[-1].data == "[DONE]"
    assert code == 0
    assert "Traceback" not in stderr


def test_a_port_in_use_and_a_foreign_address_say_which_setting_to_change() -> None:
    taken = bind("127.0.0.1", 0)
    try:
        with pytest.raises(ConfigError, match="--port"):
            bind("127.0.0.1", taken.getsockname()[1])
    finally:
        taken.close()
    with pytest.raises(ConfigError, match="--host"):
        bind("256.1.1.1", 0)


def heads_in(service: FakeService, *parts: bytes) -> bytes:
    """What the server says to these bytes, until it closes the connection."""
    with server(lambda: service.app, close=service.engine.close) as running, socket.create_connection(running.target[:2]) as raw:
        raw.settimeout(10)
        with contextlib.suppress(ConnectionError):
            for part in parts:
                raw.sendall(part)
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := raw.recv(65_536):
                said += part
        return said


def test_a_head_that_never_ends_is_refused_before_it_fills_the_memory() -> None:
    said = heads_in(FakeService(lambda prompt: None), b"GET /health HTTP/1.1\r\nx: ", *[b"x" * 65_536] * 32)
    assert said == b"" or said.startswith(b"HTTP/1.1 400 ")


def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camshaft.api.protocol.HEAD_WAIT_S", 0.1)
    assert heads_in(FakeService(lambda prompt: None), b"GET /health HTTP/1.1\r\nx: ") == b""
    # A body may take longer than that, and so may the next request.
    body = b'{"prompt": "x"}'
    head = b"POST /tokenize HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert heads_in(FakeService(lambda prompt: None), head, body).startswith(b"HTTP/1.1 200 ")


class Crowd:
    """Clients of every kind, and what became of them."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._random = random.Random(seed)
        self.ended: dict[str, int] = {"done": 0, "left": 0, "refused": 0}

    async def client(self, n_calls: int) -> None:
        for _ in range(n_calls):
            await self._call(self._random.random())

    async def _call(self, kind: float) -> None:
        n = self._random.randint(1, 60)
        fields: dict[str, object] = {"messages": [{"role": "user", "content": f"{self._random.random()}"}], "max_tokens": n, "stream": True}
        if kind < 0.15:
            bad = self._random.choice([{"temperature": -1}, {"nonsense": 1}, {"messages": []}, {"model": "none"}, {"n": 0}])
            reply = await post(self._target, PATH, json.dumps(fields | bad).encode(), deadline_s=60)
            assert 400 <= reply.status < 500
            self.ended["refused"] += 1
        elif kind < 0.35:
            await self._leave(json.dumps(fields | {"stream": kind < 0.25, "ignore_eos": True}).encode())
            self.ended["left"] += 1
        else:
            self._check(await post(self._target, PATH, json.dumps(fields | {"ignore_eos": True}).encode(), deadline_s=60), n)
            self.ended["done"] += 1

    async def _leave(self, body: bytes) -> None:
        head = f"POST {PATH} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        async with connected(self._target) as (_, writer):
            writer.write(head + body)
            await writer.drain()
            await asyncio.sleep(self._random.random() * 0.05)

    def _check(self, reply: Reply, n: int) -> None:
        """Exactly one terminal event."""
        assert reply.status == 200, reply.body
        assert [e.data for e in reply.events].count("[DONE]") == 1
        chunks = [json.loads(e.data) for e in reply.events[:-1]]
        assert [c["choices"][0]["finish_reason"] for c in chunks if c["choices"][0]["finish_reason"]] == ["length"]
        assert len([c for c in chunks if "error" in c]) == 0
        assert n > 0


@pytest.mark.parametrize(("n_clients", "n_calls"), [(24, 4), pytest.param(256, 40, marks=pytest.mark.slow)], ids=["some", "many"])
async def test_a_crowd_that_streams_leaves_and_errs_loses_no_request(n_clients: int, n_calls: int) -> None:
    service = FakeService(lambda prompt: None)
    with server(lambda: service.app, close=service.engine.close) as running:
        crowd = Crowd(running.target, seed=1)
        await asyncio.gather(*(crowd.client(n_calls) for _ in range(n_clients)))
        assert sum(crowd.ended.values()) == n_clients * n_calls
        assert min(crowd.ended.values()) > 0
        async with asyncio.timeout(10):
            while (health := service.engine.engine.health()).running or health.waiting or service.app.edge.n_inside:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        service.engine.engine.check()
        assert service.engine.engine.pool.n_in_use == 0
