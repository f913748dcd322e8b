"""ReasoningReader: takes `<think>...</think>` at the head of an answer apart from what follows."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from camshaft.tokenizer.pieces import Piece, Reader, held_back

OPEN, CLOSE = "<think>", "</think>"


class _Place(Enum):
    BEFORE = auto()  # nothing but blanks so far
    INSIDE = auto()
    GAP = auto()  # blanks after the end mark, which are nobody's
    AFTER = auto()


class ReasoningReader:
    """What lies after the reasoning goes on to `inner`, which may look for tool calls there. Inside, nothing is looked for but its end.

    Newlines next to the marks belong to the marks. An answer that does not begin with the mark has no reasoning.
    """

    def __init__(self, inner: Reader, *, begun: bool) -> None:
        """`begun`: the prompt itself opened the reasoning, so the answer starts inside it."""
        self._inner = inner
        self._place = _Place.INSIDE if begun else _Place.BEFORE
        self._held = ""
        self._fresh = True  # no reasoning shown yet: newlines at its head are the mark's

    def feed(self, text: str) -> Sequence[Piece]:
        if self._place is _Place.AFTER:
            return self._inner.feed(text)
        self._held += text
        pieces: list[Piece] = []
        if self._place is _Place.BEFORE:
            self._open(pieces)
        if self._place is _Place.INSIDE:
            self._inside(pieces)
        if self._place is _Place.GAP:
            self._held = self._held.lstrip("\n")
            if self._held:
                self._leave(pieces)
        return pieces

    def end(self) -> Sequence[Piece]:
        pieces: list[Piece] = []
        if self._place is _Place.INSIDE:
            self._show(pieces, self._held)
        elif self._place is _Place.BEFORE:
            self._leave(pieces)
        self._held = ""
        return [*pieces, *self._inner.end()]

    def _open(self, pieces: list[Piece]) -> None:
        text = self._held.lstrip()
        if text.startswith(OPEN):
            self._held = text[len(OPEN) :]
            self._place = _Place.INSIDE
        elif not OPEN.startswith(text):
            self._leave(pieces)

    def _inside(self, pieces: list[Piece]) -> None:
        text, mark, rest = self._held.partition(CLOSE)
        if mark:
            self._show(pieces, text.rstrip("\n"))
            self._held = rest
            self._place = _Place.GAP
            return
        keep = held_back(text, CLOSE)
        # Newlines before what may be the end mark wait with it.
        body = text[: len(text) - keep].rstrip("\n")
        self._held = text[len(body) :]
        self._show(pieces, body)

    def _show(self, pieces: list[Piece], text: str) -> None:
        if self._fresh:
            text = text.lstrip("\n")
        if text:
            self._fresh = False
            pieces.append(Piece("reasoning", text))

    def _leave(self, pieces: list[Piece]) -> None:
        self._place = _Place.AFTER
        pieces.extend(self._inner.feed(self._held))
        self._held = ""
