"""Envelope: one tool call as a model writes it, `{"name": ..., "arguments": {...}}`, read while it comes."""

from __future__ import annotations

import json
from collections.abc import Collection

from camshaft.tokenizer.jsonscan import BLANK, JsonScan
from camshaft.tokenizer.pieces import Piece

_ARGUMENTS = ("arguments", "parameters")


class Envelope:
    """Gives out the name once it is known and the arguments as they grow, letter for letter.

    Nothing is given out before the arguments have proved to be an object with a first key, so that what only looks like a
    call can still be content. After that the text has been sent and cannot be called back.
    """

    def __init__(self, number: int, names: Collection[str]) -> None:
        """`names`: functions that there are; a call of another is no call. Empty: any."""
        self.failed = False
        self.started = False
        self._number = number
        self._names = names
        self._scan = JsonScan()
        self._key = ""
        self._text = ""  # of the key or the value that we are in
        self._name: str | None = None
        self._arguments = ""  # not given out yet
        self._has_arguments = False
        self._in_arguments = False
        self._proved = False

    @property
    def done(self) -> bool:
        return self._scan.state == "done" and not self.failed

    def feed(self, text: str) -> tuple[int, list[Piece]]:
        """How many characters belong to the call, and what they give. Fewer than all: it is done, or it failed at that character."""
        pieces: list[Piece] = []
        for i, char in enumerate(text):
            self._step(char)
            if self.failed or self._scan.state == "done":
                self._finish()
                self._release(pieces)
                return i + (not self.failed), pieces
        self._release(pieces)
        return len(text), pieces

    def _step(self, char: str) -> None:
        scan = self._scan
        was, depth = scan.state, scan.depth
        if not scan.push(char) or (depth == 0 and char != "{"):
            self.failed = True
        elif depth > 1 or (depth == 1 and was in ("in_string", "literal")):
            # What ends a bare number stands after it; any other value is ended by its own last character.
            ended = scan.depth == 0 or (scan.depth == 1 and scan.state in ("after", "key"))
            self._in_value("" if ended and depth == 1 and was == "literal" else char, ended=ended)
        elif was in ("first_key", "key"):
            self._text = ""
        elif was == "in_key":
            if scan.state == "colon":
                self._key = self._unquoted(f'"{self._text}"')
            else:
                self._text += char
        elif was == "value" and char not in BLANK:
            self._begin(char)

    def _begin(self, char: str) -> None:
        self._text = char
        self._in_arguments = self._key in _ARGUMENTS and not self._has_arguments
        if self._in_arguments:
            self._has_arguments = True
            self.failed = char not in '{"'
            if char == "{":
                self._arguments = char

    def _in_value(self, char: str, *, ended: bool) -> None:
        self._text += char
        if self._in_arguments and self._text[0] == "{":
            self._arguments += char
            self._proved = self._proved or self._scan.state == "colon"
        if ended:
            self._ended()

    def _ended(self) -> None:
        if self._in_arguments:
            self._in_arguments = False
            if self._text[0] == '"':
                self._arguments = self._unquoted(self._text)
                self.failed = not _is_object(self._arguments)
            self._proved = not self.failed
        elif self._key == "name" and self._name is None:
            name = self._unquoted(self._text)
            self.failed = not name or bool(self._names and name not in self._names)
            self._name = None if self.failed else name

    def _unquoted(self, text: str) -> str:
        """The string that a JSON string stands for; any other value is a failure."""
        value = json.loads(text) if text[:1] == '"' else None
        self.failed = self.failed or not isinstance(value, str)
        return value if isinstance(value, str) else ""

    def _finish(self) -> None:
        if not self.failed and not self._has_arguments:
            self._arguments, self._proved = "{}", True
        self.failed = self.failed or self._name is None

    def _release(self, pieces: list[Piece]) -> None:
        if self._name is None or not self._proved:
            return
        if not self.started:
            self.started = True
            pieces.append(Piece("call", self._name, self._number))
        if self._arguments:
            pieces.append(Piece("arguments", self._arguments, self._number))
            self._arguments = ""


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
