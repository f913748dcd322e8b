"""JsonScan: follows one JSON value a character at a time, strictly, and says where in it we are."""

from __future__ import annotations

import re
from typing import Literal

State = Literal["value", "first_key", "key", "in_key", "colon", "in_string", "literal", "after", "done"]

BLANK = " \t\r\n"
_LITERAL = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_MAX_DEPTH = 64
_MAX_LITERAL = 64


class JsonScan:
    """`push` until `state` is done. A text that is no JSON is noticed at the first character that cannot be."""

    def __init__(self) -> None:
        self.state: State = "value"
        self._open: list[str] = []  # closers of the containers we are in, innermost last
        self._literal = ""
        self._escape = 0  # characters left of an escape: 1 right after the backslash, up to 4 hexadecimal digits
        self._hex = False
        self._may_close = False  # an array has just begun

    @property
    def depth(self) -> int:
        return len(self._open)

    def push(self, char: str) -> bool:
        """One more character; False when it cannot follow."""
        state = self.state
        if state in ("in_string", "in_key"):
            return self._in_string(char)
        if state == "literal":
            if char not in BLANK and char not in ",]}":
                self._literal += char
                return len(self._literal) <= _MAX_LITERAL
            if not _LITERAL.fullmatch(self._literal):
                return False
            self._closed_value()
            return self._after(char)
        if char in BLANK:
            return True
        if state == "value":
            return self._value(char)
        if state in ("first_key", "key"):
            if char == '"':
                self.state = "in_key"
                return True
            return char == "}" and state == "first_key" and self._close(char)
        if state == "colon":
            self.state = "value"
            return char == ":"
        return state == "after" and self._after(char)

    def _value(self, char: str) -> bool:
        may_close, self._may_close = self._may_close, False
        if char == "{" or char == "[":
            if self.depth >= _MAX_DEPTH:
                return False
            self._open.append("}" if char == "{" else "]")
            self.state = "first_key" if char == "{" else "value"
            self._may_close = char == "["
        elif char == '"':
            self.state = "in_string"
        elif char == "]" and may_close:
            return self._close(char)
        elif char in "-0123456789tfn":
            self.state, self._literal = "literal", char
        else:
            return False
        return True

    def _after(self, char: str) -> bool:
        if char in BLANK:
            return True
        if not self._open:
            return False
        if char == ",":
            self.state = "key" if self._open[-1] == "}" else "value"
            return True
        return self._close(char)

    def _close(self, char: str) -> bool:
        if not self._open or self._open[-1] != char:
            return False
        self._open.pop()
        self._closed_value()
        return True

    def _closed_value(self) -> None:
        self.state = "after" if self._open else "done"

    def _in_string(self, char: str) -> bool:
        if self._escape:
            self._escape -= 1
            if self._hex:
                self._hex = self._escape > 0
                return char in "0123456789abcdefABCDEF"
            if char == "u":
                self._escape, self._hex = 4, True
            return char in '"\\/bfnrtu'
        if char == "\\":
            self._escape = 1
        elif char == '"':
            if self.state == "in_key":
                self.state = "colon"
            else:
                self._closed_value()
        return char >= " "
