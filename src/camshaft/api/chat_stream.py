"""A chat answer as stream chunks: role first, then what comes, then an empty delta with the reason, then the usage."""

from __future__ import annotations

from msgspec import UNSET

from camshaft.api.answer import delta_of, finish_reason
from camshaft.api.chat_plan import ChatPlan
from camshaft.api.sse import TextEvents, struct_event
from camshaft.api.tokens import chat_logprobs
from camshaft.schema.chat import ChatChunk, ChatLogprobs, ChunkChoice, Delta, FinishReason
from camshaft.schema.fields import Usage
from camshaft.tokenizer.pieces import ContentReader, Piece
from camshaft.types import Delta as Output
from camshaft.types import Event, Finished

_MARKER = "\x00text\x00"


class ChatEvents:
    """The bytes to send for each event. One per call."""

    def __init__(self, plan: ChatPlan) -> None:
        n = len(plan.requests)
        self._plan = plan
        self._choices = [_Choice(plan, i) for i in range(n)]
        self._ends: dict[int, Finished] = {}

    def data(self, index: int, event: Event) -> bytes:
        """May be empty: text can be held back, and admission is nothing that a client sees."""
        if isinstance(event, Output):
            return self._choices[index].output(event)
        if isinstance(event, Finished):
            self._ends[index] = event
            return self._choices[index].finish(event)
        return b""

    def usage(self, usage: Usage) -> bytes:
        return struct_event(_chunk(self._plan, (), usage))

    @property
    def ends(self) -> list[Finished]:
        """In order of the choices."""
        return [self._ends[i] for i in range(len(self._choices))]

    @property
    def reasons(self) -> list[FinishReason]:
        return [finish_reason(end.reason, has_calls=c.has_calls) for end, c in zip(self.ends, self._choices, strict=True)]


class _Choice:
    """One choice's chunks. Exactly one of them, the last, has a finish reason."""

    def __init__(self, plan: ChatPlan, index: int) -> None:
        self._plan = plan
        self._index = index
        self._begun = False
        self.has_calls = False
        reader = plan.new_reader()
        # Plain content without log-probabilities is the common case; its chunks differ in one string.
        self._reader = None if isinstance(reader, ContentReader) else reader
        self._plain = (
            None if plan.with_logprobs else TextEvents(_chunk(plan, (ChunkChoice(index=index, delta=Delta(content=_MARKER)),)), _MARKER)
        )

    def output(self, event: Output) -> bytes:
        if self._begun and self._reader is None and self._plain is not None:
            # What nearly every token of nearly every stream takes.
            return self._plain.event(event.text) if event.text else b""
        pieces = (Piece("content", event.text),) if self._reader is None else tuple(self._reader.feed(event.text))
        logprobs = chat_logprobs(event.logprobs) if self._plan.with_logprobs and event.logprobs else None
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
        if not self._plan.with_reasoning:
            shown = [p for p in shown if p.kind != "reasoning"]
        self.has_calls = self.has_calls or any(p.kind == "call" for p in shown)
        if self._plain is not None:
            return b"".join(self._plain.event(p.text) if p.kind == "content" else self._chunk(delta_of(p), None) for p in shown)
        if not shown and logprobs is not None:
            return self._chunk(Delta(content=""), logprobs)
        return b"".join(self._chunk(delta_of(p), logprobs if i == 0 else None) for i, p in enumerate(shown))

    def _chunk(self, delta: Delta, logprobs: ChatLogprobs | None) -> bytes:
        return struct_event(_chunk(self._plan, (ChunkChoice(index=self._index, delta=delta, logprobs=logprobs),)))


def _chunk(plan: ChatPlan, choices: tuple[ChunkChoice, ...], usage: Usage | None = None) -> ChatChunk:
    return ChatChunk(
        id=plan.id,
        created=plan.created,
        model=plan.model.name,
        system_fingerprint=plan.model.system_fingerprint,
        choices=choices,
        usage=usage if plan.include_usage else UNSET,
    )
