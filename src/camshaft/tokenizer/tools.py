"""ToolReader: finds tool calls in an answer while it streams. ToolFormat: how a family of models writes them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import Enum, auto

from msgspec import Struct

from camshaft.tokenizer.envelope import Envelope
from camshaft.tokenizer.pieces import Piece, held_back


class ToolFormat(Struct, frozen=True):
    """A mark, then objects, then an end. Without a mark the whole answer is calls or none of it is."""

    name: str
    mark: str
    close: str
    opening: str = ""  # characters besides blanks that may stand between the mark and the first object
    between: str = ""  # and between objects


HERMES = ToolFormat("hermes", "<tool_call>", "</tool_call>")
LLAMA3 = ToolFormat("llama3", "", "", between=";")
MISTRAL = ToolFormat("mistral", "[TOOL_CALLS]", "]", opening="[", between=",")
_BLANK = " \t\r\n"


def detect(template: str) -> ToolFormat:
    """The format that a chat template speaks of; Hermes' where it speaks of none, which is then what our own prompt asks for."""
    if MISTRAL.mark in template:
        return MISTRAL
    if HERMES.mark in template:
        return HERMES
    return LLAMA3 if "<|start_header_id|>" in template and '"parameters"' in template else HERMES


class _Place(Enum):
    CONTENT = auto()
    OPEN = auto()  # after the mark
    CALL = auto()
    AFTER = auto()  # after an object


class ToolReader:
    """Text that only looks like a call comes out as content, none of it lost. Blanks around calls are nobody's."""

    def __init__(self, format: ToolFormat, names: Collection[str] = ()) -> None:
        """`names`: functions that there are; a call of another is content. Empty: any."""
        self._format = format
        self._names = names
        self._place = _Place.CONTENT if format.mark else _Place.OPEN
        self._looks = True  # whether a call may still come
        self._held = ""
        self._raw = ""  # of a call that may yet turn out to be content
        self._blanks = ""  # at the end of the content, waiting for what follows
        self._envelope = Envelope(0, names)
        self._n_calls = 0

    def feed(self, text: str) -> Sequence[Piece]:
        self._held += text
        pieces: list[Piece] = []
        while self._held and self._advance(pieces):
            pass
        return _merged(pieces)

    def end(self) -> Sequence[Piece]:
        pieces: list[Piece] = []
        if self._place in (_Place.OPEN, _Place.CALL) and not self._envelope.started:
            self._show(pieces, self._raw + self._held)
        elif self._place is _Place.CONTENT:
            self._show(pieces, self._held)
        if self._n_calls == 0 and self._blanks:
            pieces.append(Piece("content", self._blanks))
        self._held = self._blanks = self._raw = ""
        return _merged(pieces)

    def _advance(self, pieces: list[Piece]) -> bool:
        """One step through what is held; False where more text is needed."""
        if self._place is _Place.CONTENT:
            return self._content(pieces)
        if self._place is _Place.OPEN:
            return self._open(pieces)
        return self._call(pieces) if self._place is _Place.CALL else self._after()

    def _content(self, pieces: list[Piece]) -> bool:
        mark = self._format.mark
        if not self._looks or not mark:
            self._show(pieces, self._held)
            self._held = ""
            return False
        text, found, rest = self._held.partition(mark)
        if found:
            self._show(pieces, text)
            self._held, self._raw = rest, mark
            self._place, self._envelope = _Place.OPEN, Envelope(self._n_calls, self._names)
            return True
        keep = held_back(text, mark)
        self._show(pieces, text[: len(text) - keep])
        self._held = text[len(text) - keep :]
        return False

    def _open(self, pieces: list[Piece]) -> bool:
        rest = self._held.lstrip(_BLANK + self._format.opening)
        if not rest:
            return False
        if rest[0] == "{":
            self._raw += self._held[: len(self._held) - len(rest)]
            self._held, self._place = rest, _Place.CALL
            return True
        return self._give_up(pieces)

    def _call(self, pieces: list[Piece]) -> bool:
        envelope = self._envelope
        was_started = envelope.started
        n, found = envelope.feed(self._held)
        taken, self._held = self._held[:n], self._held[n:]
        if envelope.started and not was_started:
            self._n_calls += 1
            self._raw = self._blanks = ""
        elif not envelope.started:
            self._raw += taken
        pieces.extend(found)
        if envelope.failed:
            return self._give_up(pieces)
        if envelope.done:
            self._place = _Place.AFTER
        return bool(self._held)

    def _after(self) -> bool:
        format = self._format
        text = self._held.lstrip(_BLANK)
        rest = text.lstrip(_BLANK + format.between)
        if not rest or (format.close.startswith(text) and text != format.close):
            return False
        if rest[0] == "{":
            self._held, self._raw = rest, ""
            self._place, self._envelope = _Place.CALL, Envelope(self._n_calls, self._names)
            return True
        self._held = text.removeprefix(format.close) if format.close else text
        self._place = _Place.CONTENT
        return True

    def _give_up(self, pieces: list[Piece]) -> bool:
        """What was taken for a call is content, and so is the rest of an answer in a format without a mark."""
        self._show(pieces, self._raw)
        self._raw = ""
        self._place = _Place.CONTENT
        self._looks = bool(self._format.mark)
        return True

    def _show(self, pieces: list[Piece], text: str) -> None:
        whole = self._blanks + text
        body = whole.rstrip(_BLANK)
        self._blanks = whole[len(body) :]
        if body:
            pieces.append(Piece("content", body))


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Neighbours of one kind and call as one."""
    merged: list[Piece] = []
    for piece in pieces:
        if merged and merged[-1].kind == piece.kind != "call" and merged[-1].number == piece.number:
            merged[-1] = piece._replace(text=merged[-1].text + piece.text)
        else:
            merged.append(piece)
    return merged
