"""Piece: a stretch of an answer and what it is. Reader: what tells them apart while the text streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol


class Piece(NamedTuple):
    """A `call` opens tool call number `number`, with the function's name as text; `arguments` add to it."""

    kind: Literal["content", "reasoning", "call", "arguments"]
    text: str
    number: int = 0


class Reader(Protocol):
    """Splits one answer's text as it comes. Holds back what may turn out to be a mark; `end` gives up what is still held."""

    def feed(self, text: str) -> Sequence[Piece]: ...

    def end(self) -> Sequence[Piece]: ...


class ContentReader:
    """All of it is content."""

    def feed(self, text: str) -> Sequence[Piece]:
        return (Piece("content", text),) if text else ()

    def end(self) -> Sequence[Piece]:
        return ()


def held_back(text: str, mark: str) -> int:
    """How many characters at the end of `text` may be the beginning of `mark`."""
    return next((n for n in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-n:])), 0)
