"""An answer's pieces as OpenAI shows them: a message when it is whole, deltas while it streams."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET

from camshaft.schema.chat import AnswerFunction, AnswerMessage, AnswerToolCall, Delta, FinishReason, FunctionDelta, ToolCallDelta
from camshaft.tokenizer.pieces import Piece
from camshaft.types import Delta as Output


def told(output: Output) -> tuple[Piece, ...]:
    """The pieces of a delta from a server that took the answer apart itself."""
    pieces = [Piece("reasoning", output.reasoning)] if output.reasoning else []
    if output.text:
        pieces.append(Piece("content", output.text))
    for call in output.calls:
        if call.name:
            pieces.append(Piece("call", call.name, call.number))
        if call.arguments:
            pieces.append(Piece("arguments", call.arguments, call.number))
    return tuple(pieces)


class Collected:
    """One choice's answer as a message, from its pieces."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[tuple[str, str, list[str]]] = []  # (id, name, arguments in parts)

    def add(self, pieces: Sequence[Piece]) -> None:
        for piece in pieces:
            if piece.kind == "content":
                self._content.append(piece.text)
            elif piece.kind == "reasoning":
                self._reasoning.append(piece.text)
            elif piece.kind == "call":
                self._calls.append((call_id(), piece.text, []))
            else:
                self._calls[piece.number][2].append(piece.text)

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def message(self, *, with_reasoning: bool) -> AnswerMessage:
        """Content is null only beside tool calls, where there is none."""
        content = "".join(self._content)
        reasoning = "".join(self._reasoning)
        calls = [AnswerToolCall(id, AnswerFunction(name, "".join(parts))) for id, name, parts in self._calls]
        return AnswerMessage(
            content=None if calls and not content.strip() else content,
            reasoning_content=reasoning if reasoning and with_reasoning else UNSET,
            tool_calls=calls or UNSET,
        )


def delta_of(piece: Piece) -> Delta:
    """A piece as a stream's delta."""
    if piece.kind == "content":
        return Delta(content=piece.text)
    if piece.kind == "reasoning":
        return Delta(reasoning_content=piece.text)
    if piece.kind == "call":
        opened = ToolCallDelta(index=piece.number, id=call_id(), type="function", function=FunctionDelta(name=piece.text, arguments=""))
        return Delta(tool_calls=[opened])
    return Delta(tool_calls=[ToolCallDelta(index=piece.number, function=FunctionDelta(arguments=piece.text))])


def call_id() -> str:
    return "call_" + secrets.token_hex(12)


def finish_reason(engine: Literal["stop", "length", "content_filter"], *, has_calls: bool) -> FinishReason:
    """An answer cut short stays `length` even when it called a tool: its arguments may be incomplete."""
    return "tool_calls" if has_calls and engine == "stop" else engine
