"""What other servers stream, as events: text, reasoning, tool calls, log-probabilities, ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.openai_answer import MAX_CALLS, NO_ID, Answer
from camshaft.errors import CamshaftError, ReplicaLost
from camshaft.types import CallDelta, Delta, Finished, Request, SamplingParams, TextPrompt, TokenLogprob, TopLogprob, Usage


def event(choice: dict[str, Any] | None = None, **more: Any) -> bytes:
    body = {"choices": [] if choice is None else [{"index": 0} | choice], **more}
    return b"data: %b\n\n" % msgspec.json.encode(body)


def delta(**fields: Any) -> bytes:
    return event({"delta": fields})


END = event({"delta": {}, "finish_reason": "stop"})
DONE = b"data: [DONE]\n\n"


def read(*chunks: bytes) -> tuple[list[Delta], Finished]:
    answer = Answer(Request(id="r", prompt=TextPrompt("x" * 40)), TokenEstimate())
    found = [d for chunk in chunks for d in answer.feed(chunk)]
    return found, answer.end()


def calls_of(*pieces: Sequence[dict[str, Any]]) -> list[CallDelta]:
    found, _ = read(*[delta(tool_calls=piece) for piece in pieces], END)
    return [call for d in found for call in d.calls]


def test_text_that_comes_in_one_piece_is_one_delta() -> None:
    found, end = read(delta(role="assistant", content=""), delta(content="a") + delta(content="b"), delta(content="c"), END + DONE)
    assert [(d.text, d.n_tokens) for d in found] == [("ab", 2), ("c", 1)]
    assert end == Finished("stop", Usage(10, 0, 3))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("content_filter", "content_filter"),
        ("tool_calls", "stop"),
        ("function_call", "stop"),
        ("eos", "stop"),
    ],
)
def test_finish_reasons(theirs: str, ours: str) -> None:
    _, end = read(event({"delta": {}, "finish_reason": theirs, "stop_reason": "###"}))
    assert (end.reason, end.matched) == (ours, "###")


def test_an_answer_without_an_end_was_cut() -> None:
    for chunks in ([delta(content="a")], [], [event({"delta": {}, "finish_reason": "abort"}) + DONE]):
        with pytest.raises(ReplicaLost):
            read(*chunks)
    assert read(delta(content="a"), DONE)[1].reason == "stop"


def test_reasoning_and_refusals() -> None:
    found, _ = read(delta(reasoning_content="hm"), delta(reasoning="so"), delta(content="a"), delta(refusal="no"), END)
    assert [(d.reasoning, d.text) for d in found] == [("hm", ""), ("so", ""), ("", "a"), ("", "no")]


def test_calls_are_numbered_in_order_whatever_the_server_counts() -> None:
    opened = [{"index": 1, "id": "x", "type": "function", "function": {"name": "f", "arguments": ""}}]
    more = [{"index": 1, "function": {"arguments": '{"a"'}}]
    second = [{"index": 2, "id": "y", "function": {"name": "g", "arguments": "{}"}}]
    assert calls_of(opened, more, second) == [CallDelta(0, "f", ""), CallDelta(0, "", '{"a"'), CallDelta(1, "g", "{}")]


def test_calls_that_all_have_index_zero_are_told_apart_by_id() -> None:
    first = [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}]
    second = [{"index": 0, "id": "y", "function": {"name": "f", "arguments": "{}"}}]
    again = [{"index": 0, "id": "y", "function": {"name": None, "arguments": " "}}]
    assert calls_of(first, second, again) == [CallDelta(0, "f", "{}"), CallDelta(1, "f", "{}"), CallDelta(1, "", " ")]


def test_whole_calls_without_index_and_with_an_object_for_arguments() -> None:
    both = [{"id": "x", "function": {"name": "f", "arguments": {"a": 1}}}, {"id": "y", "function": {"name": "g"}}]
    assert calls_of(both) == [CallDelta(0, "f", '{"a":1}'), CallDelta(1, "g", "")]


def test_calls_are_bounded() -> None:
    with pytest.raises(ReplicaLost, match="tool calls"):
        calls_of([{"index": i, "function": {"name": "f"}} for i in range(MAX_CALLS + 1)])


def test_logprobs_of_both_apis() -> None:
    top = [{"token": "a", "logprob": -0.1, "bytes": None}, {"token": "?", "logprob": -3, "bytes": [240]}]
    chat = event(
        {"delta": {"content": "a"}, "logprobs": {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": top}]}}
    )
    text = event(
        {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [-0.1], "top_logprobs": [{"a": -0.1, "b": -3.0}], "text_offset": [0]}}
    )
    (one,), _ = read(chat, END)[0], None
    assert one.logprobs == (TokenLogprob(NO_ID, b"a", -0.1, (TopLogprob(NO_ID, b"a", -0.1), TopLogprob(NO_ID, b"\xf0", -3.0))),)
    assert one.n_tokens == 1
    (other,) = read(text, END)[0]
    assert other.logprobs == (TokenLogprob(NO_ID, b"a", -0.1, (TopLogprob(NO_ID, b"a", -0.1), TopLogprob(NO_ID, b"b", -3.0))),)


@pytest.mark.parametrize("n", [-5, 1 << 60])
def test_counts_that_cannot_be_are_neither_charged_nor_learned(n: int) -> None:
    estimate = TokenEstimate()
    answer = Answer(Request(id="r", prompt=TextPrompt("x" * 40)), estimate)
    before = estimate.tokens_of_chars(1000)
    usage = {"prompt_tokens": n, "completion_tokens": n, "prompt_tokens_details": {"cached_tokens": n}}
    answer.feed(delta(content="abc") + END + event(usage=usage))
    assert answer.rest() is None
    assert answer.end().usage == Usage(answer.n_prompt, 0, 1)
    assert estimate.tokens_of_chars(1000) == before


def test_usage_comes_from_the_server_and_teaches_the_estimate() -> None:
    estimate = TokenEstimate()
    answer = Answer(Request(id="r", prompt=TextPrompt("x" * 400_000)), estimate)
    usage = {"prompt_tokens": 200_000, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 30}}
    answer.feed(delta(content="abc") * 3 + END + event(usage=usage))
    assert answer.end().usage == Usage(200_000, 30, 6)
    assert 1.9 < estimate.chars_per_token < 2.2
    assert estimate.tokens_per_event > 1


def test_tokens_on_the_way_add_up_to_what_the_server_counted() -> None:
    estimate = TokenEstimate()
    for _ in range(2):
        answer = Answer(Request(id="r", prompt=TextPrompt("x"), sampling=SamplingParams(max_tokens=40)), estimate)
        told = sum(d.n_tokens for _ in range(30) for d in answer.feed(delta(content="abc")))
        answer.feed(END + event(usage={"prompt_tokens": 1, "completion_tokens": 40}))
        rest = answer.rest()
        assert told + (0 if rest is None else rest.n_tokens) == 40
        assert answer.end().usage.n_output == 40
        for _ in range(50):
            estimate.learn_events(10, 40)  # so that the second answer would be counted far too high


def test_odd_chunks_are_passed_over_and_impossible_ones_are_faults() -> None:
    odd = b": ping\n\n" + event(usage=None) + b'data: {"object":"x"}\n\n' + event({"index": 1, "delta": {"content": "other choice"}})
    found, _ = read(odd, delta(content="a", annotations=[]), END)
    assert [d.text for d in found] == ["a"]
    for bad in (
        b"data: nonsense\n\n",
        b'data: {"choices":7}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"error":{"message":"x"}}\n\n',
    ):
        with pytest.raises(CamshaftError):
            read(bad)
