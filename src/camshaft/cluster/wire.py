"""Wire: what a gateway and a worker of its say to each other, as frames on one connection.

A frame is its length in 4 bytes, most significant first, and so many bytes of msgpack. Nothing in it can name code. Times are relative:
two processes do not compare their clocks.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from camshaft.errors import BadRequest, CamshaftError, DeadlineExceeded, EngineFault
from camshaft.types import ErrorInfo, Event, Failed, Load, ReplicaInfo, Request

VERSION = 1
MAX_FRAME = 64 << 20  # bytes
_HEAD = 4
T = TypeVar("T")


class WireError(Exception):
    """What came is not of this protocol. The connection is of no more use."""


class Hello(Struct, frozen=True, array_like=True, tag="hello"):
    """A worker's first word, as soon as it runs. `token` is what its settings told it, so that nobody else can take its place."""

    version: int
    token: str


class Warming(Struct, frozen=True, array_like=True, tag="warming"):
    """The model is loaded."""


class Ready(Struct, frozen=True, array_like=True, tag="ready"):
    """The first prefill and decode are done."""

    info: ReplicaInfo


class Ask(Struct, frozen=True, array_like=True, tag="ask"):
    """A new stream. Numbers are never used twice. The request is msgpack by itself, so that a bad one fails alone."""

    stream: int
    request: bytes


class Events(Struct, frozen=True, array_like=True, tag="events"):
    """All that is ready of one stream, in order."""

    stream: int
    events: tuple[Event, ...]


class Cancel(Struct, frozen=True, array_like=True, tag="cancel"):
    """Nobody reads this stream any more. Nothing more need be said about it."""

    stream: int


class Ping(Struct, frozen=True, array_like=True, tag="ping"):
    number: int


class Pong(Struct, frozen=True, array_like=True, tag="pong"):
    """`step_s`: for how long the step has been computed that is being computed now; 0 where there is none."""

    number: int
    load: Load
    step_s: float


class AskMetrics(Struct, frozen=True, array_like=True, tag="ask_metrics"):
    number: int


class MetricsText(Struct, frozen=True, array_like=True, tag="metrics"):
    """In Prometheus' text format."""

    number: int
    text: bytes


class Bye(Struct, frozen=True, array_like=True, tag="bye"):
    """From the gateway: stop. From a worker: it takes nothing new, and why."""

    error: ErrorInfo | None = None


ToWorker = Ask | Cancel | Ping | AskMetrics | Bye
FromWorker = Hello | Warming | Ready | Events | Pong | MetricsText | Bye
Message = ToWorker | FromWorker

_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
TO_WORKER: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)
FROM_WORKER: msgspec.msgpack.Decoder[FromWorker] = msgspec.msgpack.Decoder(FromWorker)


def frame(message: Message) -> bytearray:
    """The bytes of a message. Raises WireError for one that is larger than a frame may be."""
    out = bytearray(_HEAD)
    _ENCODER.encode_into(message, out, _HEAD)
    size = len(out) - _HEAD
    if size > MAX_FRAME:
        raise WireError(f"a message of {size} bytes is larger than the {MAX_FRAME} that a frame may have")
    out[:_HEAD] = size.to_bytes(_HEAD, "big")
    return out


class Frames(Generic[T]):
    """Bytes in, messages out. Holds one unfinished frame at most."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decode = decoder.decode
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[T]:
        """The messages that these bytes complete. Raises WireError; nothing can be read after that."""
        if self._rest:
            self._rest += data
            data = bytes(self._rest) if self._is_whole(self._rest) else b""
            if not data:
                return []
            self._rest.clear()
        out: list[T] = []
        view, at = memoryview(data), 0
        while len(data) - at >= _HEAD:
            end = at + _HEAD + _size(data, at)
            if end > len(data):
                break
            try:
                out.append(self._decode(view[at + _HEAD : end]))
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise WireError(f"a frame of {end - at - _HEAD} bytes that is no message: {error}") from None
            at = end
        if at < len(data):
            self._rest += view[at:]
        return out

    def _is_whole(self, data: bytearray) -> bool:
        return len(data) >= _HEAD and len(data) >= _HEAD + _size(data, 0)


def _size(data: bytes | bytearray, at: int) -> int:
    size = int.from_bytes(data[at : at + _HEAD], "big")
    if size > MAX_FRAME:
        raise WireError(f"a frame of {size} bytes; at most {MAX_FRAME} are taken")
    return size


def relative(request: Request, now: float) -> Request:
    """With a deadline that counts from now. Raises DeadlineExceeded where that is over."""
    deadline_s = request.deadline_s
    if deadline_s is not None and request.arrived_at:
        deadline_s -= now - request.arrived_at
        if deadline_s <= 0:
            raise DeadlineExceeded(f"the deadline of {request.deadline_s:g} s passed before a replica was asked; allow more time")
    return msgspec.structs.replace(request, deadline_s=deadline_s, arrived_at=0.0)


def ask(stream: int, request: Request) -> bytearray:
    """The frame of a new stream. Raises BadRequest where it cannot be said."""
    try:
        return frame(Ask(stream, _ENCODER.encode(request)))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise BadRequest(f"the request holds something that no text or number of 64 bits can say: {error}") from None
    except WireError as error:
        raise BadRequest(f"the request is too large: {error}; shorten it") from None


def asked(raw: bytes) -> Request:
    """The other end of `ask`. Raises BadRequest."""
    try:
        return _REQUESTS.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"the request could not be read: {error}") from None


def told(stream: int, events: tuple[Event, ...]) -> tuple[bytearray, bool]:
    """The frame of some events, and whether the stream is over though they did not end it: what cannot be sent ends it with an error."""
    try:
        return frame(Events(stream, events)), False
    except (WireError, ValueError, OverflowError) as error:
        fault: CamshaftError = EngineFault(f"the answer cannot be sent: {error}; ask for fewer log-probabilities")
        return frame(Events(stream, (Failed(fault.info()),))), True
