"""Server-sent events, read: bytes in any cut to events, as the WHATWG standard says."""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT_BYTES = 16_000_000
_BOM = b"\xef\xbb\xbf"


class SseEvent(NamedTuple):
    event: str
    data: str
    id: str | None  # the last one seen, as the standard has it


class SseParser:
    """An event that the stream's end leaves open is no event."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._most = max_event_bytes
        self._rest = b""  # of a line that has not ended
        self._began = False
        self._skip_lf = False  # the last byte was CR, so that an LF next belongs to it
        self._data: list[bytes] = []
        self._size = 0  # bytes in _data
        self._event = ""
        self._id: str | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Events that this chunk completes. Raises ValueError for an event beyond all measure."""
        return [SseEvent(name or "message", data.decode("utf-8", "replace"), id) for name, data, id in self.feed_raw(chunk)]

    def feed_raw(self, chunk: bytes) -> list[tuple[str, bytes, str | None]]:
        """The same as (name, data, id): for who decodes the data anyway. The name is "" where the event gave none."""
        if chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") and not (self._rest or self._data or self._event or self._skip_lf):
            # Whole events of one line each, as nearly every server writes them.
            parts = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(b"\n") == 2 * len(parts) and b"\r" not in chunk and len(chunk) <= self._most:
                self._began = True
                return [("", part, self._id) for part in parts]
        if self._skip_lf and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if chunk:
            self._skip_lf = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        text = self._rest + chunk
        if not self._began:
            if len(text) < len(_BOM) and _BOM.startswith(text):
                self._rest = text
                return []
            self._began = True
            text = text.removeprefix(_BOM)
        *lines, self._rest = text.split(b"\n")
        if len(self._rest) > self._most:
            raise ValueError("a line of the stream never ends")
        found: list[tuple[str, bytes, str | None]] = []
        for line in lines:
            if line:
                self._field(line)
                continue
            if self._data:
                found.append((self._event, b"\n".join(self._data), self._id))
            self._data, self._event, self._size = [], "", 0
        return found

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
            if self._size > self._most:
                raise ValueError("an event of the stream never ends")
        elif name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
