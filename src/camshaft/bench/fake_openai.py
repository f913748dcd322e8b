"""A server that speaks OpenAI's API and has no model: scripted answers at a pace, so that what stands before it can be measured and tested.

    python -m camshaft.bench.fake_openai --port 9000 [--tokens 16] [--first-s 0] [--token-s 0]

Pace and length come from the command line, or from the request: a last message (or prompt) that is a JSON object of `Play`'s fields,
such as {"n": 64, "token_s": 0.01}. Written to cost little, since it runs beside what it measures: an answer that needs no pause takes
no task and no timer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, cast

import msgspec
import uvloop
from httptools import HttpParserError, HttpRequestParser
from msgspec import Struct

MAX_PROMPT_IDS = 8192
MODEL = "fake"
USUAL = 16  # tokens
MAX_KEPT = 256


class Play(Struct, frozen=True, omit_defaults=True):
    """What a request gets. `deltas` replaces the plain text; `status` other than 200 replaces the answer."""

    n: int = 0  # tokens; 0: as many as the request allows, or 16
    first_s: float = 0.0
    token_s: float = 0.0  # 0: everything in one write
    status: int = 200
    body: str = ""
    headers: dict[str, str] = {}
    deltas: tuple[dict[str, Any], ...] = ()  # whole choices without their index, one an event
    finish: str = ""  # the finish reason where it is not what the number of tokens makes it
    usage: bool = True
    raw: tuple[str, ...] = ()  # replaces the events of a stream, as they are
    whole: str = ""  # replaces a stream by an answer in one piece
    cut_after: int = -1  # events, then the connection is closed
    stall_after: int = -1  # events, then silence


class Asked(Struct, frozen=True):
    """The part of a request that the fake reads."""

    model: str = MODEL
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stream: bool | None = None


class Shape(NamedTuple):
    """What an answer depends on beside its play."""

    n: int  # tokens
    full: bool  # as many as were allowed
    n_prompt: int
    chat: bool


Script = Callable[[Asked], Play]
_decode = msgspec.json.Decoder(Asked).decode
_play = msgspec.json.Decoder(Play).decode
_encode = msgspec.json.encode


class FakeOpenAI:
    """The server. Tests read what it was asked and who is still there."""

    def __init__(self, default: Play | None = None, script: Script | None = None) -> None:
        self.default = default or Play()
        self.script = script or self.read
        self.asked: deque[bytes] = deque(maxlen=256)  # bodies
        self.heads: deque[dict[str, str]] = deque(maxlen=256)
        self.connections: set[_Connection] = set()
        self.n_connections = 0
        self.port = 0
        self._kept: dict[Shape, list[bytes]] = {}  # events of plain answers, which many requests get
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def running(self) -> int:
        """Answers that are not complete and whose client is there."""
        return sum(c.busy for c in self.connections)

    async def start(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, loop), "127.0.0.1", port, backlog=2048)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.transport.abort()

    def events(self, shape: Shape, play: Play) -> Sequence[bytes]:
        if play.raw:
            return [_chunk(event.encode()) for event in play.raw]
        if play.deltas or play.finish or not play.usage:
            return events(shape, play)
        if shape not in self._kept:
            if len(self._kept) >= MAX_KEPT:
                self._kept.clear()
            self._kept[shape] = events(shape, play)
        return self._kept[shape]

    def read(self, asked: Asked) -> Play:
        """The play that the request itself names, or the default one."""
        said = asked.messages[-1].get("content") if asked.messages else asked.prompt
        if not (isinstance(said, str) and said.startswith("{")):
            return self.default
        try:
            return _play(said)
        except msgspec.DecodeError:
            return self.default


class _Connection(asyncio.Protocol):
    def __init__(self, server: FakeOpenAI, loop: asyncio.AbstractEventLoop) -> None:
        self.busy = False
        self._server = server
        self._loop = loop
        self._parser = HttpRequestParser(self)
        self._path = b""
        self._body = b""
        self._head: dict[str, str] = {}
        self._events: Sequence[bytes] = ()
        self._at = 0
        self._play = Play()
        self._timer: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------------------------- asyncio, httptools

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._server.connections.add(self)
        self._server.n_connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self.busy = False
        self._server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            self.transport.abort()

    def on_message_begin(self) -> None:
        self._path = self._body = b""
        self._head = {}

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head[name.decode().lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        path = self._path.decode()
        if path.endswith("/completions"):
            self._complete(chat=path.endswith("/chat/completions"))
        elif path == "/v1/models":
            self._reply(200, b'{"object":"list","data":[{"id":"%b","object":"model"}]}' % MODEL.encode())
        elif path in ("/health", "/metrics"):
            self._reply(200, b"fake_up 1\n")
        else:
            self._reply(404, b'{"error":{"message":"there is nothing here"}}')

    # ------------------------------------------------------------------------------------------------------------ answers

    def _complete(self, *, chat: bool) -> None:
        server = self._server
        server.asked.append(self._body)
        server.heads.append(self._head)
        try:
            asked = _decode(self._body)
            n_prompt = _count(asked)
        except ValueError as error:
            self._refuse(str(error), "invalid_request_error")
            return
        if n_prompt > MAX_PROMPT_IDS:
            self._refuse(f"This model's maximum context length is {MAX_PROMPT_IDS} tokens", "context_length_exceeded")
            return
        play = server.script(asked)
        if play.status != 200:
            self._reply(play.status, play.body.encode(), play.headers)
            return
        most = asked.max_tokens or asked.max_completion_tokens
        n = min(play.n or most or USUAL, most or play.n or USUAL)
        self.busy = True
        self._play = play
        if asked.stream and not play.whole:
            self._events, self._at = server.events(Shape(n, n == most, n_prompt, chat), play), 0
            self._wait(play.first_s, self._begin)
        else:
            body = play.whole.encode() or whole(Shape(n, n == most, n_prompt, chat), play)
            self._wait(play.first_s + n * play.token_s, lambda: self._finish_whole(body))

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        if seconds:
            self._timer = self._loop.call_later(seconds, then)
        else:
            then()

    def _begin(self) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        play = self._play
        if play.token_s or play.cut_after >= 0 or play.stall_after >= 0:
            self.transport.write(head)
            self._next()
        else:
            self.busy = False
            self.transport.write(head + b"".join(self._events) + b"0\r\n\r\n")

    def _next(self) -> None:
        play, at = self._play, self._at
        if at == play.cut_after:
            self.transport.close()
            return
        if at == play.stall_after:
            return
        self._at += 1
        if self._at < len(self._events):
            self.transport.write(self._events[at])
            self._wait(play.token_s, self._next)
        else:
            self.busy = False
            self.transport.write(self._events[at] + b"0\r\n\r\n")

    def _finish_whole(self, body: bytes) -> None:
        self.busy = False
        self._reply(200, body)

    def _refuse(self, message: str, code: str) -> None:
        error = {"message": message, "type": "invalid_request_error", "param": "prompt", "code": code}
        self._reply(400, _encode({"error": error}))

    def _reply(self, status: int, body: bytes, headers: dict[str, str] = {}) -> None:
        more = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{more}\r\n"
        self.transport.write(head.encode() + body)


def _count(asked: Asked) -> int:
    """Tokens of the prompt: ids, or words. Raises ValueError where there are none."""
    if isinstance(asked.prompt, list):
        n = len(asked.prompt)
    elif asked.prompt is not None:
        n = len(asked.prompt.split())
    else:
        n = sum(len(str(m.get("content") or "").split()) for m in asked.messages or ())
    if not n:
        raise ValueError("the prompt is empty")
    return n


def choices(shape: Shape, play: Play) -> list[dict[str, Any]]:
    if play.deltas:
        return list(play.deltas)
    words = [f" w{i}" for i in range(shape.n)]
    return [{"delta": {"content": word}} if shape.chat else {"text": word} for word in words]


def finish(shape: Shape, play: Play) -> str:
    return play.finish or ("length" if shape.full else "stop")


def usage(shape: Shape) -> dict[str, Any]:
    n, n_prompt = shape.n, shape.n_prompt
    return {"prompt_tokens": n_prompt, "completion_tokens": n, "total_tokens": n + n_prompt, "prompt_tokens_details": {"cached_tokens": 0}}


def _base(kind: str) -> dict[str, Any]:
    return {"id": "fake-1", "object": kind, "created": 1, "model": MODEL}


def events(shape: Shape, play: Play) -> list[bytes]:
    """A stream's events as HTTP chunks: the choices, the finish reason, the usage, the end."""
    base: dict[str, Any] = {
        "id": "fake-1",
        "object": "chat.completion.chunk" if shape.chat else "text_completion",
        "created": 1,
        "model": MODEL,
    }
    last = {"delta": {}, "finish_reason": finish(shape, play)} if shape.chat else {"text": "", "finish_reason": finish(shape, play)}
    bodies = [base | {"choices": [{"index": 0, "finish_reason": None} | choice]} for choice in [*choices(shape, play), last]]
    if play.usage:
        bodies.append(base | {"choices": [], "usage": usage(shape)})
    payloads = [b"data: %b\n\n" % _encode(body) for body in bodies] + [b"data: [DONE]\n\n"]
    return [_chunk(payload) for payload in payloads]


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def whole(shape: Shape, play: Play) -> bytes:
    """An answer in one piece; of `deltas` the last that has each field."""
    base = _base("chat.completion" if shape.chat else "text_completion")
    found = choices(shape, play)
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish(shape, play)}
    if shape.chat:
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        for each in found:
            message |= each["delta"] | {"content": message["content"] + (each["delta"].get("content") or "")}
        choice["message"] = message
    else:
        choice["text"] = "".join(each["text"] for each in found)
    return _encode(base | {"choices": [choice], "usage": usage(shape)})


async def serve(port: int, default: Play) -> None:
    fake = FakeOpenAI(default)
    await fake.start(port)
    sys.stderr.write(f"listening on {fake.url}\n")
    sys.stderr.flush()
    try:
        await asyncio.Event().wait()
    finally:
        await fake.close()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, default=0, help="(default: a free one, said on stderr)")
    parser.add_argument("--tokens", type=int, default=0, help="of an answer (default: as many as asked for, or 16)")
    parser.add_argument("--first-s", type=float, default=0.0, help="seconds to the first (default: 0)")
    parser.add_argument("--token-s", type=float, default=0.0, help="seconds from one to the next; 0 sends all at once (default: 0)")
    parser.add_argument("--status", type=int, default=200, help="of every answer (default: 200)")
    args = parser.parse_args(argv)
    play = Play(n=args.tokens, first_s=args.first_s, token_s=args.token_s, status=args.status)
    with suppress(KeyboardInterrupt):
        uvloop.run(serve(args.port, play))
    return 0


if __name__ == "__main__":
    sys.exit(main())
