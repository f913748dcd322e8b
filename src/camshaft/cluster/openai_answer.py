"""Answer: what another server streams, as our events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import UNSET

from camshaft.cluster.estimate import TokenEstimate, prompt_chars
from camshaft.cluster.refusal import in_stream
from camshaft.errors import ReplicaLost
from camshaft.schema.foreign import ForeignCall, ForeignChoice, ForeignChunk, ForeignDelta, ForeignLogprobs, ForeignTop, ForeignUsage
from camshaft.schema.sse import SseParser
from camshaft.types import CallDelta, ChatPrompt, Delta, Finished, Request, TextPrompt, TokenLogprob, TopLogprob, Usage

MAX_EVENT_BYTES = 4_000_000
MAX_CALLS = 128
MAX_TOKENS = 1 << 30  # of a prompt or an answer; a server that counts more, or fewer than none, has not counted
UNBOUNDED = 1 << 62
NO_ID = -1  # of a token: the server tells none

Reason = Literal["stop", "length", "content_filter"]
_REASONS: Mapping[str, Reason] = {"length": "length", "max_tokens": "length", "content_filter": "content_filter"}
_BROKEN = ("abort", "error", "failed")  # vLLM's and SGLang's words for an answer that the server gave up

_decode_chunk = msgspec.json.Decoder(ForeignChunk).decode


class Answer:
    """One answer. Bytes go in as they come, deltas come out; what arrives in one piece is one delta where that loses nothing."""

    def __init__(self, request: Request, estimate: TokenEstimate, key: str = "") -> None:
        """`key`: what must not be in an error's text."""
        self.over = False  # [DONE] was read
        prompt = request.prompt
        # 0 for ids, which teach nothing.
        self._n_chars = prompt_chars(prompt) if isinstance(prompt, TextPrompt | ChatPrompt) else 0
        self.n_prompt = estimate.tokens_of_chars(self._n_chars) if self._n_chars else estimate.tokens_of(prompt)  # about
        self._most = UNBOUNDED if request.sampling.max_tokens is None else request.sampling.max_tokens
        self._estimate = estimate
        self._per_event = estimate.tokens_per_event
        self._key = key
        self._parser = SseParser(MAX_EVENT_BYTES)
        self._calls = _Calls()
        self._reason: str | None = None
        self._matched: str | int | None = None
        self._usage: ForeignUsage | None = None
        self._n_events = 0
        self._n_told = 0  # tokens, in deltas so far

    def feed(self, data: bytes) -> list[Delta]:
        """Raises CamshaftError where the server says that it failed, and for what is no answer."""
        found: list[Delta] = []
        texts: list[str] = []  # of consecutive chunks that have nothing else
        try:
            for name, payload, _ in self._parser.feed_raw(data):
                if payload == b"[DONE]":
                    self.over = True
                    break
                chunk = _decode_chunk(payload)
                if not self._take(chunk, texts, found) and name == "error":
                    raise in_stream(payload, self._key)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            raise ReplicaLost("the server sent something that is no part of an answer") from None
        self._flush(texts, found)
        return found

    def whole(self, body: bytes) -> list[Delta]:
        """An answer that came in one piece, from a server that does not stream. Raises the same."""
        found: list[Delta] = []
        texts: list[str] = []
        try:
            self._take(_decode_chunk(body), texts, found)
        except (ValueError, RecursionError):
            raise ReplicaLost("the server sent something that is no answer") from None
        self._flush(texts, found)
        self.over = True
        return found

    def rest(self) -> Delta | None:
        """Tokens that the server counted and no delta did, once everything was fed: so that what was counted on the way adds up."""
        n = 0 if self._usage is None else (_sound(self._usage.completion_tokens) or 0) - self._n_told
        return Delta("", (), n_tokens=n) if n > 0 else None

    def end(self) -> Finished:
        """Once everything was fed. Raises ReplicaLost for an answer without an end."""
        if self._reason is None and not self.over:
            raise ReplicaLost("the server ended the answer before it was complete")
        if self._reason in _BROKEN:
            raise ReplicaLost("the server gave the answer up before it was complete")
        return Finished(_REASONS.get(self._reason or "", "stop"), self._counted(), self._matched)

    def _take(self, chunk: ForeignChunk, texts: list[str], found: list[Delta]) -> bool:
        """False where it has none of what an answer is made of."""
        choices = chunk.choices
        if choices and chunk.usage is None and chunk.error is UNSET:
            # What nearly every chunk is.
            for choice in choices:
                self._take_choice(choice, texts, found)
            return True
        if chunk.error is not UNSET and bytes(chunk.error) != b"null":
            raise in_stream(bytes(chunk.error), self._key)
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in choices or ():
            self._take_choice(choice, texts, found)
        return choices is not None or chunk.usage is not None

    def _take_choice(self, choice: ForeignChoice, texts: list[str], found: list[Delta]) -> None:
        if choice.index:
            return  # never asked for
        if choice.finish_reason is not None:
            self._reason, self._matched = choice.finish_reason, choice.stop_reason
        piece = choice.delta or choice.message or _NOTHING
        text = choice.text or piece.content or piece.refusal or ""
        reasoning = piece.reasoning_content or piece.reasoning or ""
        if not (piece.tool_calls or reasoning or choice.logprobs):
            if text:
                self._n_events += 1
                texts.append(text)
            return
        self._flush(texts, found)
        self._n_events += 1
        calls = self._calls.read(piece.tool_calls or ())
        logprobs = () if choice.logprobs is None else _logprobs(choice.logprobs)
        found.append(Delta(text, (), logprobs, reasoning, calls, max(self._n_new(), len(logprobs))))

    def _flush(self, texts: list[str], found: list[Delta]) -> None:
        if texts:
            found.append(Delta("".join(texts), (), n_tokens=self._n_new()))
            texts.clear()

    def _n_new(self) -> int:
        """Tokens since the last delta, about; fractions are carried."""
        told = self._n_told
        self._n_told = min(round(self._n_events * self._per_event), self._most)
        return self._n_told - told

    def _counted(self) -> Usage:
        """As the server counted, which is learned from; estimated where it does not say."""
        usage = self._usage or _SILENT
        n_prompt, n_output = _sound(usage.prompt_tokens), _sound(usage.completion_tokens)
        if n_prompt is None:
            n_prompt = self.n_prompt
        else:
            self._estimate.learn(self._n_chars, n_prompt)
        if n_output is None:
            n_output = self._n_told
        else:
            self._estimate.learn_events(self._n_events, n_output)
        details = usage.prompt_tokens_details
        n_cached = (None if details is None else _sound(details.cached_tokens)) or 0
        return Usage(n_prompt, min(n_cached, n_prompt), n_output)


def _sound(n: int | None) -> int | None:
    """A count that may be charged to a tenant and learned from; None otherwise."""
    return n if n is not None and 0 <= n <= MAX_TOKENS else None


_NOTHING = ForeignDelta()
_SILENT = ForeignUsage()


class _Calls:
    """Numbers the calls of an answer in order. Servers start at 0 or 1, leave the index out, or give each call index 0 and its own id."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # the server's index -> ours
        self._ids: dict[int, str] = {}  # the server's index -> id of the call that is open there
        self._n = 0

    def read(self, pieces: Sequence[ForeignCall]) -> tuple[CallDelta, ...]:
        return tuple(self._read(piece, place) for place, piece in enumerate(pieces))

    def _read(self, piece: ForeignCall, place: int) -> CallDelta:
        index = place if piece.index is None else piece.index
        function = piece.function
        name = "" if function is None else function.name or ""
        known = self._ids.get(index)
        is_new = index not in self._numbers or bool(piece.id and known and piece.id != known and name)
        if is_new:
            if not name:
                raise ReplicaLost("the server sent a tool call without a name")
            if self._n >= MAX_CALLS:
                raise ReplicaLost(f"the server sent more than {MAX_CALLS} tool calls in one answer")
            self._numbers[index], self._ids[index] = self._n, piece.id or ""
            self._n += 1
        return CallDelta(self._numbers[index], name if is_new else "", _arguments(piece))


def _arguments(piece: ForeignCall) -> str:
    given = None if piece.function is None else piece.function.arguments
    if isinstance(given, dict):
        return msgspec.json.encode(given).decode()
    return given or ""


def _logprobs(given: ForeignLogprobs) -> tuple[TokenLogprob, ...]:
    if given.content is not None:
        return tuple(TokenLogprob(NO_ID, _bytes(e.token, e.bytes), e.logprob, _tops(e.top_logprobs or ())) for e in given.content)
    tokens = given.tokens or ()
    values = given.token_logprobs or [None] * len(tokens)
    tops = given.top_logprobs or [None] * len(tokens)
    return tuple(
        TokenLogprob(NO_ID, _bytes(token), value, tuple(TopLogprob(NO_ID, _bytes(t), p) for t, p in (top or {}).items()))
        for token, value, top in zip(tokens, values, tops, strict=False)
    )


def _tops(given: Sequence[ForeignTop]) -> tuple[TopLogprob, ...]:
    return tuple(TopLogprob(NO_ID, _bytes(top.token, top.bytes), top.logprob) for top in given)


def _bytes(token: str, given: list[int] | None = None) -> bytes:
    return bytes(given) if given else token.encode("utf-8", "replace")
