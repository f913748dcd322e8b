"""What the API's tests serve: an upstream that plays a script, a tokenizer of bytes, and a client over ASGI."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from camshaft.api.app import App, create_app
from camshaft.api.auth import read_keys
from camshaft.api.directory import FixedModels
from camshaft.api.served import ChatFormat, ServedModel
from camshaft.config import ServerConfig
from camshaft.observe.metrics import Metrics
from camshaft.tokenizer.pieces import Piece, Reader
from camshaft.types import (
    ChatPrompt,
    Delta,
    Event,
    Finished,
    Grammar,
    Health,
    Request,
    SamplingParams,
    Started,
    TokenLogprob,
    TopLogprob,
    Upstream,
    Usage,
)

BOS, EOS = 256, 257


class ByteTokenizer:
    """One id per byte, then a BOS and an EOS."""

    vocab_size = 258
    special_ids = frozenset((BOS, EOS))

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [BOS, *text.encode()] if add_special_tokens else list(text.encode())

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        kept = b"".join(self.token_bytes(i) for i in ids if not (skip_special_tokens and i in self.special_ids))
        return kept.decode("utf-8", "replace")

    def token_bytes(self, id: int) -> bytes:
        return {BOS: b"<s>", EOS: b"</s>"}.get(id) or bytes([id])


def say(*texts: str, reason: str = "stop", n_prompt: int = 5, n_cached: int = 0, matched: str | int | None = None) -> list[Event]:
    """A script: started, one delta per text, finished."""
    events: list[Event] = [Started(n_prompt, n_cached, 0.0)]
    events += [Delta(t, tuple(t.encode())) for t in texts]
    n_output = sum(len(t.encode()) for t in texts)
    assert reason in ("stop", "length")
    return [*events, Finished(reason, Usage(n_prompt, n_cached, n_output), matched)]  # type: ignore[arg-type]


def scored(token: bytes, logprob: float | None = -0.5, id: int = 0, top: Sequence[tuple[bytes, float]] = ()) -> TokenLogprob:
    return TokenLogprob(id, token, logprob, tuple(TopLogprob(0, t, p) for t, p in top))


class PlainChat:
    """A conversation as `role: content` lines; tool calls as `<call>NAME ARGUMENTS</call>`, reasoning as `<think>...</think>`."""

    def encode(self, prompt: ChatPrompt) -> list[int]:
        text = "".join(f"{m['role']}: {m['content']}\n" for m in prompt.messages)
        return [BOS, *text.encode()] + (list(b"assistant:") if prompt.add_generation_prompt else [])

    def reader_for(self, prompt: ChatPrompt, forced: str | None) -> Callable[[], Reader] | None:
        return TagReader if prompt.tools or prompt.template_kwargs.get("enable_thinking") else None

    def tool_grammar(self, tools: Sequence[Mapping[str, Any]], forced: str, *, single: bool) -> Grammar:
        return Grammar("regex", f"call:{forced or 'any'}:{single}:{len(tools)}")

    def free_grammar(self, tools: Sequence[Mapping[str, Any]]) -> Grammar | None:
        return Grammar("regex", f"free:{len(tools)}")


class TagReader:
    """Reads what PlainChat writes, from deltas that hold whole tags or whole stretches between them."""

    def __init__(self) -> None:
        self._kind = "content"
        self._calls = 0

    def feed(self, text: str) -> Sequence[Piece]:
        found: list[Piece] = []
        for span in re.split(r"(</?think>|<call>|</call>)", text):
            if span in ("<think>", "</think>", "<call>", "</call>"):
                self._kind = {"<think>": "reasoning", "<call>": "call"}.get(span, "content")
            elif self._kind == "call" and span:
                name, _, arguments = span.partition(" ")
                found.append(Piece("call", name, self._calls))
                found.extend(Piece("arguments", part, self._calls) for part in re.findall(r".{1,4}", arguments))
                self._calls += 1
            elif span:
                found.append(Piece(self._kind, span))  # type: ignore[arg-type]
        return found

    def end(self) -> Sequence[Piece]:
        return ()


Script = Sequence[Event | Exception | float]


@dataclass
class Scripted:
    """Plays `script(request)`: events are yielded, exceptions raised, numbers slept. Remembers what came and what was closed early."""

    script: Callable[[Request], Script] = field(default=lambda request: say("Hello", " world"))
    requests: list[Request] = field(default_factory=list)
    open: int = 0
    closed_early: list[str] = field(default_factory=list)
    ready: bool = True

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.requests.append(request)
        self.open += 1
        finished = False
        try:
            for item in self.script(request):
                if isinstance(item, Exception):
                    raise item
                if isinstance(item, int | float):
                    await asyncio.sleep(item)
                    continue
                finished = isinstance(item, Finished)
                yield item
        finally:
            self.open -= 1
            if not finished:
                self.closed_early.append(request.id)

    async def health(self) -> Health:
        return Health(self.ready, self.open, 0, "" if self.ready else "still loading")

    async def close(self) -> None:
        pass

    @property
    def last(self) -> Request:
        return self.requests[-1]


CHAT = PlainChat()
DEFAULTS = SamplingParams()
CONFIG = ServerConfig()


def served(upstream: Upstream, *, chat: ChatFormat | None = CHAT, name: str = "tiny", defaults: SamplingParams = DEFAULTS) -> ServedModel:
    return ServedModel(
        name=name,
        upstream=upstream,
        tokenizer=ByteTokenizer(),
        max_model_len=4096,
        system_fingerprint="fp-test",
        defaults=defaults,
        chat=chat,
        created=1_700_000_000,
    )


def app_over(upstream: Upstream, config: ServerConfig = CONFIG, *, chat: ChatFormat | None = CHAT) -> App:
    return create_app(FixedModels([served(upstream, chat=chat)], read_keys(config.api_keys)), config, Metrics())


def client_of(app: App, headers: dict[str, str] | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test", headers=headers)


CHAT_PATH, TEXT_PATH = "/v1/chat/completions", "/v1/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}


def chunks_of(body: str) -> list[dict[str, Any]]:
    """A stream's chunks; the stream must be `data:` events and end with [DONE]."""
    *events, rest = body.split("\n\n")
    assert rest == ""
    assert all(e.startswith("data: ") and "\n" not in e for e in events), events
    assert events[-1] == "data: [DONE]"
    return [json.loads(e.removeprefix("data: ")) for e in events[:-1]]


class Asgi:
    """One call by hand, for what an HTTP client cannot do: leave in the middle, send a body in parts, take nothing."""

    def __init__(self, app: App, path: str, parts: Sequence[bytes], headers: dict[str, str] | None = None) -> None:
        pairs = [(k.lower().encode(), v.encode()) for k, v in (headers or {}).items()]
        self._scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path}
        self._scope |= {"raw_path": path.encode(), "query_string": b"", "headers": pairs, "scheme": "http", "root_path": ""}
        self._app = app
        self._parts = list(parts)
        self._left = asyncio.Event()
        self.sent: list[dict[str, Any]] = []
        self.n_read = 0
        self.stuck = False

    def leave(self) -> None:
        self._left.set()

    async def run(self) -> None:
        await self._app(self._scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            self.n_read += 1
            return {"type": "http.request", "body": self._parts.pop(0), "more_body": bool(self._parts)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        if self.stuck:
            await asyncio.Event().wait()

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def body(self) -> bytes:
        return b"".join(m.get("body", b"") for m in self.sent)


async def until(condition: Callable[[], bool]) -> None:
    """Waits until it holds; fails after 5 s."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 - what is waited for is a plain attribute
            await asyncio.sleep(0.001)
