"""Server-sent events, written the cheap way: what does not change from token to token is encoded once."""

from __future__ import annotations

import msgspec
from msgspec import Struct

DONE = b"data: [DONE]\n\n"

_encode = msgspec.json.encode


def event(payload: bytes) -> bytes:
    """One event. JSON has no raw newlines, so that one data line holds it."""
    return b"data: " + payload + b"\n\n"


def struct_event(chunk: Struct) -> bytes:
    return b"data: " + _encode(chunk) + b"\n\n"


class TextEvents:
    """Events that differ in one string only: the bytes before it and after it, and a JSON string between."""

    __slots__ = ("_after", "_before")

    def __init__(self, sample: Struct, marker: str) -> None:
        """`sample` is a chunk with `marker` in the string's place; raises ValueError if it is not there exactly once."""
        before, found, after = _encode(sample).partition(_encode(marker))
        if not found or _encode(marker) in after:
            raise ValueError("the marker must stand in the sample exactly once")
        self._before = b"data: " + before
        self._after = after + b"\n\n"

    def event(self, text: str) -> bytes:
        return self._before + _encode(text) + self._after
