"""A chat answer, as stream chunks (role first, then what comes, then an empty delta with the reason, then the usage) or whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec import UNSET

from camshaft.api.answer import Collected, delta_of, finish_reason, told
from camshaft.api.plan import Plan
from camshaft.api.sse import TextEvents, struct_event
from camshaft.api.tokens import chat_logprobs, of_text
from camshaft.schema.chat import ChatChoice, ChatChunk, ChatCompletion, ChatLogprobs, ChunkChoice, Delta
from camshaft.schema.fields import Usage
from camshaft.tokenizer.pieces import ContentReader, Piece, Reader
from camshaft.types import Delta as Output
from camshaft.types import Event, Finished, TokenLogprob

_MARKER = "\x00text\x00"


class ChatWriter:
    """Implements answering.Writer."""

    def __init__(self, plan: Plan, new_reader: Callable[[], Reader], with_reasoning: bool) -> None:
        self.plan = plan
        choices = [(plan, i, new_reader(), with_reasoning) for i in range(len(plan.requests))]
        self._chunks = [_Chunks(*choice) for choice in choices] if plan.stream else []
        self._messages = [] if plan.stream else [_Message(*choice) for choice in choices]

    def chunk(self, index: int, event: Event) -> bytes:
        if isinstance(event, Output):
            return self._chunks[index].output(event)
        return self._chunks[index].finish(event) if isinstance(event, Finished) else b""

    def usage_chunk(self, usage: Usage) -> bytes:
        return struct_event(_chunk(self.plan, (), usage))

    def take(self, index: int, event: Event) -> None:
        self._messages[index].take(event)

    def whole(self, ends: Sequence[Finished], usage: Usage) -> bytes:
        plan = self.plan
        choices = [message.whole(end) for message, end in zip(self._messages, ends, strict=True)]
        answer = ChatCompletion(
            id=plan.id,
            created=plan.created,
            model=plan.model.name,
            system_fingerprint=plan.model.system_fingerprint,
            choices=choices,
            usage=usage,
        )
        return msgspec.json.encode(answer)

    def reason(self, index: int, end: Finished) -> str:
        has_calls = self._chunks[index].has_calls if self._chunks else self._messages[index].has_calls
        return finish_reason(end.reason, has_calls=has_calls)


class _Message:
    """One choice's answer, collected."""

    def __init__(self, plan: Plan, index: int, reader: Reader, with_reasoning: bool) -> None:
        self._plan = plan
        self._index = index
        self._reader = reader
        self._with_reasoning = with_reasoning
        self._collected = Collected()
        self._logprobs: list[TokenLogprob] = []

    @property
    def has_calls(self) -> bool:
        return self._collected.has_calls

    def take(self, event: Event) -> None:
        if isinstance(event, Output):
            self._collected.add(told(event) if event.calls or event.reasoning else self._reader.feed(event.text))
            self._logprobs.extend(of_text(event.logprobs))
        elif isinstance(event, Finished):
            self._collected.add(self._reader.end())

    def whole(self, end: Finished) -> ChatChoice:
        return ChatChoice(
            index=self._index,
            message=self._collected.message(with_reasoning=self._with_reasoning),
            logprobs=chat_logprobs(self._logprobs) if self._plan.with_logprobs else None,
            finish_reason=finish_reason(end.reason, has_calls=self.has_calls),
            stop_reason=UNSET if end.matched is None else end.matched,
        )


class _Chunks:
    """One choice's chunks. Exactly one of them, the last, has a finish reason."""

    def __init__(self, plan: Plan, index: int, reader: Reader, with_reasoning: bool) -> None:
        self._plan = plan
        self._index = index
        self._with_reasoning = with_reasoning
        self._begun = False
        self.has_calls = False
        # Plain content without log-probabilities is the common case; its chunks differ in one string.
        self._reader = None if isinstance(reader, ContentReader) else reader
        self._plain = (
            None if plan.with_logprobs else TextEvents(_chunk(plan, (ChunkChoice(index=index, delta=Delta(content=_MARKER)),)), _MARKER)
        )

    def output(self, event: Output) -> bytes:
        taken_apart = event.calls or event.reasoning
        if self._begun and self._reader is None and self._plain is not None and not taken_apart:
            # What nearly every token of nearly every stream takes.
            return self._plain.event(event.text) if event.text else b""
        pieces = told(event) if taken_apart or self._reader is None else tuple(self._reader.feed(event.text))
        entries = of_text(event.logprobs) if self._plan.with_logprobs else ()
        logprobs = chat_logprobs(entries) if entries else None
        return self._opening() + self._pieces(pieces, logprobs)

    def finish(self, event: Finished) -> bytes:
        last = b"" if self._reader is None else self._pieces(tuple(self._reader.end()), None)
        reason = finish_reason(event.reason, has_calls=self.has_calls)
        matched = UNSET if event.matched is None else event.matched
        end = ChunkChoice(index=self._index, delta=Delta(), finish_reason=reason, stop_reason=matched)
        return self._opening() + last + struct_event(_chunk(self._plan, (end,)))

    def _opening(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        return struct_event(_chunk(self._plan, (ChunkChoice(index=self._index, delta=Delta(role="assistant", content="", refusal=None)),)))

    def _pieces(self, pieces: tuple[Piece, ...], logprobs: ChatLogprobs | None) -> bytes:
        """Chunks for the pieces. The log-probabilities ride on the first; without a piece they come beside an empty one."""
        shown = [p for p in pieces if p.text or p.kind == "call"]
        if not self._with_reasoning:
            shown = [p for p in shown if p.kind != "reasoning"]
        self.has_calls = self.has_calls or any(p.kind == "call" for p in shown)
        if self._plain is not None:
            return b"".join(self._plain.event(p.text) if p.kind == "content" else self._chunk(delta_of(p), None) for p in shown)
        if not shown and logprobs is not None:
            return self._chunk(Delta(content=""), logprobs)
        return b"".join(self._chunk(delta_of(p), logprobs if i == 0 else None) for i, p in enumerate(shown))

    def _chunk(self, delta: Delta, logprobs: ChatLogprobs | None) -> bytes:
        return struct_event(_chunk(self._plan, (ChunkChoice(index=self._index, delta=delta, logprobs=logprobs),)))


def _chunk(plan: Plan, choices: tuple[ChunkChoice, ...], usage: Usage | None = None) -> ChatChunk:
    return ChatChunk(
        id=plan.id,
        created=plan.created,
        model=plan.model.name,
        system_fingerprint=plan.model.system_fingerprint,
        choices=choices,
        usage=usage if plan.include_usage else UNSET,
    )
