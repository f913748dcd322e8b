"""Frames: whole, split, joined, too large, garbage."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.cluster import wire
from camshaft.errors import BadRequest, DeadlineExceeded
from camshaft.types import (
    ChatPrompt,
    Delta,
    Failed,
    Finished,
    Grammar,
    Load,
    ReplicaInfo,
    Request,
    Resume,
    Route,
    SamplingParams,
    Scored,
    Started,
    TextPrompt,
    TokenLogprob,
    TokenPrompt,
    TopLogprob,
    Usage,
)

LOGPROB = TokenLogprob(5, b"\xf0\x9f", -1.5, (TopLogprob(7, b"x", -2.0),), True)
EVENTS = (
    Started(3, 2, 0.5, Route("v", "r", "", 2)),
    Scored((TokenLogprob(1, b"a", None), LOGPROB)),
    Delta("é\x00", (1, 2**40), (LOGPROB,)),
    Finished("stop", Usage(1, 2, 3), 17),
    Finished("length", Usage(1, 2, 3), "STOP"),
    Failed(BadRequest("no", param="x", retry_after_s=1.5).info()),
)
CHAT = ChatPrompt(
    ({"role": "user", "content": [{"type": "text", "text": "hi"}], "n": None},), ({"type": "function"},), template_kwargs={"a": 1}
)
REQUEST = Request(
    id="r",
    prompt=CHAT,
    sampling=SamplingParams(seed=2**63 - 1, logit_bias=((3, -1.0),), stop=("a",), grammar=Grammar("regex", "a+")),
    resume=Resume((1, 2), 3),
    cache_salt="s",
)
FROM_WORKER: list[wire.FromWorker] = [
    wire.Hello(1, "t"),
    wire.Warming(),
    wire.Ready(ReplicaInfo("id", 1, 2, 3, 4, 5)),
    *(wire.Events(i, (event,)) for i, event in enumerate(EVENTS)),
    wire.Events(9, EVENTS),
    wire.Pong(1, Load(1, 2, 0.5, 0.25), 0.1),
    wire.MetricsText(2, b"a 1\n"),
    wire.Bye(BadRequest("x").info()),
]


def test_every_message_comes_out_as_it_went_in() -> None:
    frames = wire.Frames(wire.FROM_WORKER)
    assert frames.feed(b"".join(wire.frame(m) for m in FROM_WORKER)) == FROM_WORKER
    to_worker: list[wire.ToWorker] = [wire.Cancel(1), wire.Ping(2), wire.AskMetrics(3), wire.Bye()]
    assert wire.Frames(wire.TO_WORKER).feed(b"".join(wire.frame(m) for m in to_worker)) == to_worker


@given(st.lists(st.integers(0, 400)))
def test_however_the_bytes_are_cut(cuts: list[int]) -> None:
    data = b"".join(wire.frame(m) for m in FROM_WORKER)
    frames, at, out = wire.Frames(wire.FROM_WORKER), 0, []
    for n in [*cuts, len(data)]:
        out += frames.feed(data[at : at + n])
        at += n
    assert out == FROM_WORKER


@pytest.mark.parametrize("prompt", [CHAT, TextPrompt("x" * 100_000), TokenPrompt(tuple(range(50_000)))], ids=["chat", "text", "ids"])
def test_requests_come_out_as_they_went_in(prompt: ChatPrompt | TextPrompt | TokenPrompt) -> None:
    request = msgspec.structs.replace(REQUEST, prompt=prompt)
    (message,) = wire.Frames(wire.TO_WORKER).feed(bytes(wire.ask(4, request)))
    assert isinstance(message, wire.Ask)
    assert message.stream == 4
    assert wire.asked(message.request) == request


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x02\xff\xff",
        (2**31).to_bytes(4, "big"),
        wire.frame(wire.Ping(1)),  # what only a gateway says
        b"\x00\x00\x00\x05\x94\xa6eve",
        b"\x00\x00\x00\x03\x91\xa1x",
    ],
)
def test_garbage_is_an_error(garbage: bytes) -> None:
    frames = wire.Frames(wire.FROM_WORKER)
    with pytest.raises(wire.WireError):
        frames.feed(bytes(wire.frame(wire.Warming())) + bytes(garbage) + bytes(100_000))


def test_random_bytes_never_do_worse_than_an_error() -> None:
    rng = random.Random(3)
    for _ in range(2000):
        body = rng.randbytes(rng.randint(0, 40))
        with pytest.raises(wire.WireError):
            wire.Frames(wire.FROM_WORKER).feed(len(body).to_bytes(4, "big") + body)


def test_a_frame_that_is_said_to_be_huge_is_refused_before_it_comes() -> None:
    with pytest.raises(wire.WireError, match="at most"):
        wire.Frames(wire.TO_WORKER).feed((wire.MAX_FRAME + 1).to_bytes(4, "big"))


def test_times_are_relative() -> None:
    """Two processes' monotonic clocks have nothing to do with one another."""
    sent = wire.relative(msgspec.structs.replace(REQUEST, deadline_s=10.0, arrived_at=100.0), 103.0)
    assert (sent.deadline_s, sent.arrived_at) == (7.0, 0.0)
    assert wire.relative(REQUEST, 50.0).deadline_s is None
    assert wire.relative(msgspec.structs.replace(REQUEST, deadline_s=10.0), 103.0).deadline_s == 10.0
    with pytest.raises(DeadlineExceeded):
        wire.relative(msgspec.structs.replace(REQUEST, deadline_s=10.0, arrived_at=100.0), 110.0)


@pytest.mark.parametrize("content", ["\ud800", 2**70, object()])
def test_what_cannot_be_said_is_the_requests_fault(content: object) -> None:
    with pytest.raises(BadRequest):
        wire.ask(1, Request(id="r", prompt=ChatPrompt(({"role": "user", "content": content},))))


def test_a_request_nested_too_deep_fails_alone() -> None:
    deep: object = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(BadRequest):
        wire.ask(1, Request(id="r", prompt=ChatPrompt(({"content": deep},))))
    # A frame of one that another program made, which the worker would meet.
    raw = msgspec.msgpack.encode(REQUEST).replace(b"\xa2hi", b"\x91" * 5000 + b"\xc0")
    (message,) = wire.Frames(wire.TO_WORKER).feed(bytes(wire.frame(wire.Ask(1, raw))))
    assert isinstance(message, wire.Ask)
    with pytest.raises(BadRequest):
        wire.asked(message.request)


def test_an_answer_that_cannot_be_sent_ends_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_FRAME", 10_000)
    data, broken = wire.told(3, (Delta("x" * 20_000, (1,)),))
    assert broken
    (message,) = wire.Frames(wire.FROM_WORKER).feed(bytes(data))
    assert isinstance(message, wire.Events)
    assert isinstance(message.events[-1], Failed)
    data, broken = wire.told(3, (Delta("\ud800", (1,)),))
    assert broken
