"""Hostile requests over a real socket: each gets a clear error, and the server is unharmed: it answers, holds no block and logs no error.

Everything but arithmetic is real.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from camshaft.bench.sse_client import post
from camshaft.schema.decode import MAX_ARRAYS_AND_OBJECTS
from http_server import Running, server
from served_fake import CAPACITY, FakeService

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0}
STREAM_ON = ASKED | {"stream": True, "ignore_eos": True, "max_tokens": 400, "logprobs": True, "top_logprobs": 20}


@pytest.fixture(scope="module")
def service() -> FakeService:
    return FakeService(lambda prompt: b"Paris.", token_s=0.001)


@pytest.fixture(scope="module")
def running(service: FakeService) -> Iterator[Running]:
    with server(lambda: service.app, close=service.engine.close) as found:
        yield found


@pytest.fixture(autouse=True)
def unharmed(service: FakeService, running: Running, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After every test: no error in the log, nothing held, a right answer, and gauges that say so."""
    caplog.set_level(logging.WARNING)
    yield
    assert not caplog.records
    until = time.monotonic() + 10
    while service.app.edge.n_inside or service.engine.engine.health().running:
        assert time.monotonic() < until, "a request never ended"
        time.sleep(0.005)
    service.engine.engine.check()
    assert service.engine.engine.pool.n_in_use == 0
    status, body = asked(running, CHAT, ASKED)
    assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Paris.")
    assert gauges(running) == {"running": 0.0, "waiting": 0.0, "kv": 0.0}


def asked(running: Running, path: str, body: dict[str, Any] | bytes) -> tuple[int, bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    reply = asyncio.run(post(running.target, path, data, deadline_s=20))
    return reply.status, reply.body


def gauges(running: Running) -> dict[str, float]:
    """The engine's gauges, once its last turn has set them."""
    names = {"camshaft_num_requests_running": "running", "camshaft_num_requests_waiting": "waiting", "camshaft_kv_cache_usage_perc": "kv"}
    until = time.monotonic() + 5
    while True:
        text = said(running, b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").decode()
        lines = [line.rpartition(" ") for line in text.splitlines() if line.split("{")[0] in names]
        found = {names[line.split("{")[0]]: float(value) for line, _, value in lines}
        if not any(found.values()) or time.monotonic() > until:
            return found
        time.sleep(0.01)


def connect(running: Running) -> socket.socket:
    raw = socket.create_connection(running.target[:2])
    raw.settimeout(10)
    return raw


def head(path: str, length: int | str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n".encode()


def request(fields: dict[str, Any], path: str = CHAT) -> bytes:
    body = json.dumps(fields).encode()
    return head(path, len(body)) + b"\r\n" + body


def said(running: Running, data: bytes) -> bytes:
    """What the server answers until it closes the connection."""
    answer = b""
    with closing(connect(running)) as raw:
        with suppress(ConnectionError):
            raw.sendall(data)
        with suppress(ConnectionError):
            while part := raw.recv(65_536):
                answer += part
    return answer


# ---------------------------------------------------------------------------------------------------- requests that are refused

OUT_OF_RANGE: dict[str, tuple[str, dict[str, Any]]] = {
    "no messages": (CHAT, {"messages": []}),
    "an empty prompt": (TEXT, {"prompt": ""}),
    "a prompt longer than the context": (TEXT, {"prompt": "x" * (CAPACITY.max_model_len + 1)}),
    "ids longer than the context": (TEXT, {"prompt": [1] * (CAPACITY.max_model_len + 1)}),
    "a chat longer than the context": (CHAT, {"messages": [{"role": "user", "content": "x" * 1_900_000}]}),
    "max_tokens 0": (CHAT, {"max_tokens": 0}),
    "max_tokens 0 without echo": (TEXT, {"prompt": "x", "max_tokens": 0}),
    "max_tokens -1": (CHAT, {"max_tokens": -1}),
    "temperature -1": (CHAT, {"temperature": -1}),
    "top_p 0": (CHAT, {"top_p": 0}),
    "n 0": (CHAT, {"n": 0}),
    "n of a million": (CHAT, {"n": 10**6}),
    "a biased id that is none": (CHAT, {"logit_bias": {"100000": 1}}),
    "a bias out of range": (CHAT, {"logit_bias": {"1": 1000}}),
    "a regex that is none": (CHAT, {"structured_outputs": {"regex": "(((("}}),
    "a grammar that is none": (CHAT, {"structured_outputs": {"grammar": "start: ???"}}),
    "a schema out of this world": (
        CHAT,
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"$ref": "http://127.0.0.1:1/x"}}}},
    ),
    "a wrong type": (CHAT, {"messages": {"a": 1}}),
    "a field that is none": (CHAT, {"tempreture": 1}),
    "too many lists": (TEXT, {"prompt": [[1]] * (MAX_ARRAYS_AND_OBJECTS + 1)}),
    "a token that is none": ("/detokenize", {"tokens": [10**9]}),
}


@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_a_request_out_of_range_is_a_400_of_one_line(running: Running, what: str) -> None:
    path, fields = OUT_OF_RANGE[what]
    status, body = asked(running, path, (ASKED if path == CHAT else {}) | fields)
    assert status == 400, body
    message = json.loads(body)["error"]["message"]
    assert message
    assert "\n" not in message
    assert len(message) < 1000


def nested(depth: int) -> bytes:
    schema = b'{"items":' * depth + b"{}" + b"}" * depth
    answer = b'{"type":"json_schema","json_schema":{"name":"x","schema":' + schema + b"}}"
    return b'{"messages":[{"role":"user","content":"x"}],"response_format":' + answer + b"}"


BROKEN: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 400),
    "half of an object": (b'{"messages":', 400),
    "no object": (b"[]", 400),
    "NaN": (b'{"messages":[{"role":"user","content":"x"}],"temperature":NaN}', 400),
    "a number beyond all": (b'{"messages":[{"role":"user","content":"x"}],"temperature":1e999999}', 400),
    "an integer of 100,000 digits": (b'{"messages":[{"role":"user","content":"x"}],"seed":' + b"9" * 100_000 + b"}", 400),
    "half of a surrogate pair": (b'{"messages":[{"role":"user","content":"\\ud800"}]}', 400),
    "the other half": (b'{"messages":[{"role":"user","content":"x"}],"stop":"\\udc00"}', 400),
    "a surrogate in bytes": (b'{"messages":[{"role":"user","content":"\xed\xa0\x80"}]}', 400),
    "a schema 10,000 deep": (nested(10_000), 400),
    "brackets without end": (b'{"messages":' + b"[" * 1_000_000, 400),
    "30 MB": (b'{"messages":[{"role":"user","content":"' + b"x" * 30_000_000 + b'"}]}', 413),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_body_that_is_no_request_is_refused(running: Running, what: str) -> None:
    body, status = BROKEN[what]
    # Read by hand: a body refused in the middle may find its connection closed.
    answer = said(running, head(CHAT, len(body)) + b"connection: close\r\n\r\n" + body)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_an_unknown_model_is_a_404(running: Running) -> None:
    status, body = asked(running, CHAT, ASKED | {"model": "gpt-4"})
    assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", CHAT, 405), ("DELETE", "/health", 405), ("OPTIONS", TEXT, 405), ("GET", "/v2", 404)]
)
def test_a_wrong_method_or_path_is_said_in_json(running: Running, method: str, path: str, status: int) -> None:
    answer = said(running, f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


NOT_HTTP: dict[str, bytes] = {
    "noise": b"\x00\x01\x02\r\n\r\n",
    "TLS": bytes.fromhex("16030100a5010000a10303") + b"a" * 160,
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two lengths": head(TEXT, 3) + b"content-length: 5\r\n\r\nabcde",
    "a length and chunks": head(TEXT, 5) + b"transfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length below nothing": head(TEXT, -5) + b"\r\n",
    "a length that is none": head(TEXT, "abc") + b"\r\n",
    "a chunk beyond all": b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"f" * 18 + b"\r\n",
    "an endless path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
    "control characters in a header": b"GET /health HTTP/1.1\r\nhost: x\r\nx-request-id: a\x7f\r\n\r\n",
}


@pytest.mark.parametrize("what", NOT_HTTP)
def test_what_is_not_http_is_a_400_and_a_closed_connection(running: Running, what: str) -> None:
    assert said(running, NOT_HTTP[what]).startswith(b"HTTP/1.1 400 ")


# ---------------------------------------------------------------------------------------------------- requests that are served


def test_requests_in_one_packet_are_answered_in_turn(running: Running) -> None:
    last = b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    answer = said(running, request(ASKED) * 5 + request({"messages": []}) + last)
    assert [answer.count(f"HTTP/1.1 {status} ".encode()) for status in (200, 400)] == [6, 1]
    assert answer.count(b"Paris.") == 5


@pytest.mark.parametrize("stop", ["ris", "Paris.", "is.", "."])
def test_a_stop_string_over_several_tokens_is_never_shown(running: Running, stop: str) -> None:
    body = json.loads(asked(running, CHAT, ASKED | {"stop": stop})[1])
    assert body["choices"][0]["message"]["content"] == "Paris.".partition(stop)[0]


def test_echo_of_nothing_more_gives_the_prompts_log_probabilities(running: Running) -> None:
    fields = {"prompt": "Paris", "max_tokens": 0, "echo": True, "logprobs": 1}
    choice = json.loads(asked(running, TEXT, fields)[1])["choices"][0]
    assert choice["text"] == "Paris"
    assert choice["logprobs"]["tokens"] == list("Paris")
    assert choice["logprobs"]["text_offset"] == [0, 1, 2, 3, 4]
    assert [value is None for value in choice["logprobs"]["token_logprobs"]] == [True, False, False, False, False]


# ---------------------------------------------------------------------------------------------------- clients that leave or crawl


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.1], ids=["at once", "in prefill", "in decode"])
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_client_that_leaves_frees_its_blocks(running: Running, stream: bool, after_s: float, reset: bool) -> None:
    with closing(connect(running)) as raw:
        if reset:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raw.sendall(request(STREAM_ON | {"stream": stream}))
        time.sleep(after_s)


def test_clients_that_read_nothing_hold_nobody_back(running: Running) -> None:
    crawlers = []
    for _ in range(8):
        raw = connect(running)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        raw.sendall(request(STREAM_ON))
        crawlers.append(raw)
    assert asked(running, CHAT, ASKED)[0] == 200
    for raw in crawlers:
        raw.close()


def test_a_body_that_stops_coming_is_given_up_when_its_client_leaves(running: Running) -> None:
    with closing(connect(running)) as raw:
        raw.sendall(request(ASKED)[:-5])
        assert asked(running, CHAT, ASKED)[0] == 200


async def test_good_and_bad_clients_at_once_each_get_their_own_answer(running: Running) -> None:
    async def client(i: int) -> int:
        kind = i % 4
        if kind == 0:
            return (await post(running.target, CHAT, json.dumps(ASKED | {"temperature": -1}).encode(), deadline_s=30)).status
        if kind == 1:
            with suppress(TimeoutError):
                await post(running.target, CHAT, json.dumps(STREAM_ON).encode(), deadline_s=0.002 * i)
            return 0
        if kind == 2:
            reply = await post(running.target, CHAT, json.dumps(ASKED | {"stream": True}).encode(), deadline_s=30)
            assert [e.data for e in reply.events].count("[DONE]") == 1
            return reply.status
        fields = {"prompt": ["a", "b"], "n": 2, "max_tokens": 10, "temperature": 1, "seed": i}
        reply = await post(running.target, TEXT, json.dumps(fields).encode(), deadline_s=30)
        assert [c["index"] for c in json.loads(reply.body)["choices"]] == [0, 1, 2, 3]
        return reply.status

    statuses = await asyncio.gather(*(client(i) for i in range(64)))
    assert statuses == [400, 0, 200, 200] * 16
