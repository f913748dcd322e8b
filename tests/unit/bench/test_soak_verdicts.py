"""The soak is only as good as its judgement of an answer: what it takes for complete, and what it calls a violation."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from camshaft.bench.sse_client import Reply, Stamped

Judge = Callable[..., tuple[str, str]]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Judge:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "bench"))
    found: Judge = importlib.import_module("soak_clients").judge
    return found


def chunk(index: int, reason: str | None) -> str:
    return json.dumps({"choices": [{"index": index, "finish_reason": reason}]})


def streamed(*data: str) -> Reply:
    return Reply(0.0, 200, {}, [Stamped(0.0, text) for text in data])


ERROR = json.dumps({"error": {"message": "x"}})


@pytest.mark.parametrize(
    ("n", "data", "ended"),
    [
        (1, (chunk(0, None), chunk(0, "stop"), "[DONE]"), "streamed"),
        (2, (chunk(1, "stop"), chunk(0, "length"), "[DONE]"), "streamed"),
        (1, (chunk(0, None), ERROR, "[DONE]"), "ended by an error event"),
    ],
    ids=["one choice", "two choices", "an error as the end"],
)
def test_a_stream_with_one_end_for_each_choice_is_fine(judge: Judge, n: int, data: tuple[str, ...], ended: str) -> None:
    assert judge(streamed(*data), n, stream=True) == (ended, "")


@pytest.mark.parametrize(
    ("n", "data"),
    [
        (1, ()),
        (1, (chunk(0, "stop"),)),
        (1, (chunk(0, None), "[DONE]")),
        (1, (chunk(0, "stop"), chunk(0, "stop"), "[DONE]")),
        (2, (chunk(0, "stop"), "[DONE]")),
        (1, (chunk(0, "stop"), "[DONE]", "[DONE]")),
        (1, (chunk(0, "stop"), "[DONE]", chunk(0, None))),
        (1, (ERROR, ERROR, "[DONE]")),
        (1, (ERROR, chunk(0, None), "[DONE]")),
    ],
    ids=[
        "nothing",
        "cut off",
        "no reason",
        "two reasons",
        "a choice open",
        "done twice",
        "more after done",
        "two errors",
        "more after an error",
    ],
)
def test_a_stream_without_exactly_one_end_is_a_violation(judge: Judge, n: int, data: tuple[str, ...]) -> None:
    assert judge(streamed(*data), n, stream=True)[1]


@pytest.mark.parametrize(
    ("status", "body", "fine"),
    [
        (200, {"choices": [{"finish_reason": "stop"}]}, True),
        (200, {"choices": []}, False),
        (400, {"error": {"message": "x"}}, True),
        (500, {}, False),
    ],
)
def test_an_answer_in_one_piece_ends_with_a_reason_or_an_error_body(judge: Judge, status: int, body: dict[str, Any], fine: bool) -> None:
    reply = Reply(0.0, status, body=json.dumps(body).encode())
    assert (judge(reply, 1, stream=False)[1] == "") is fine
