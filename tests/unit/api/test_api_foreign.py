"""A model that a server of another make answers for: what it is told, and its reasoning and calls in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from api_doubles import CHAT_PATH, HI, TEXT_PATH, Scripted, chunks_of, client_of, say
from camshaft.api.app import App, create_app
from camshaft.api.directory import FixedModels
from camshaft.api.foreign import foreign_model
from camshaft.config import ServerConfig
from camshaft.observe.metrics import Metrics
from camshaft.types import CallDelta, ChatPrompt, Delta, Event, Finished, Grammar, Started, TokenLogprob, Usage

TOOLS = [
    {"type": "function", "function": {"name": "look", "description": "d", "parameters": {"type": "object"}, "strict": True}},
    {"type": "function", "function": {"name": "sing"}},
]
APART: list[Event] = [
    Started(3, 0, 0.0),
    Delta("", (), reasoning="Well", n_tokens=1),
    Delta("Hi", (), reasoning=".", n_tokens=2),
    Delta("", (), calls=(CallDelta(0, "look"), CallDelta(0, "", '{"a"'))),
    Delta("", (), calls=(CallDelta(0, "", ":1}"), CallDelta(1, "sing", "{}"))),
    Finished("stop", Usage(3, 1, 9)),
]


def app_over(upstream: Scripted) -> App:
    return create_app(FixedModels([foreign_model("theirs", upstream)]), ServerConfig(), Metrics())


async def post(upstream: Scripted, path: str, body: dict[str, Any]) -> httpx.Response:
    async with client_of(app_over(upstream)) as client:
        return await client.post(path, json=body)


def playing(*events: Event) -> Scripted:
    return Scripted(lambda request: list(events))


async def told(body: dict[str, Any]) -> ChatPrompt:
    upstream = Scripted()
    answer = await post(upstream, CHAT_PATH, HI | body)
    assert answer.status_code == 200, answer.text
    prompt = upstream.last.prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


async def test_reasoning_and_calls_in_a_whole_answer() -> None:
    answer = (await post(playing(*APART), CHAT_PATH, HI | {"tools": TOOLS})).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "tool_calls"
    message = choice["message"]
    assert (message["content"], message["reasoning_content"]) == ("Hi", "Well.")
    assert [(c["type"], c["function"]) for c in message["tool_calls"]] == [
        ("function", {"name": "look", "arguments": '{"a":1}'}),
        ("function", {"name": "sing", "arguments": "{}"}),
    ]
    ids = [c["id"] for c in message["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(id.startswith("call_") for id in ids)
    assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (3, 9)


@pytest.mark.parametrize("logprobs", [False, True])
async def test_reasoning_and_calls_in_a_stream(logprobs: bool) -> None:
    answer = await post(playing(*APART), CHAT_PATH, HI | {"tools": TOOLS, "stream": True, "logprobs": logprobs})
    choices = [c for chunk in chunks_of(answer.text) for c in chunk["choices"]]
    deltas = [c["delta"] for c in choices]
    assert [d["reasoning_content"] for d in deltas if "reasoning_content" in d] == ["Well", "."]
    assert "".join(d.get("content") or "" for d in deltas) == "Hi"
    pieces = [call for d in deltas for call in d.get("tool_calls", ())]
    opened = [p for p in pieces if "id" in p]
    assert [(p["index"], p["function"]["name"], p["type"]) for p in opened] == [(0, "look", "function"), (1, "sing", "function")]
    assert "".join(p["function"]["arguments"] for p in pieces if p["index"] == 0) == '{"a":1}'
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["tool_calls"]


async def test_reasoning_is_left_out_for_who_does_not_want_it() -> None:
    for stream in (False, True):
        answer = await post(playing(*APART), CHAT_PATH, HI | {"stream": stream, "include_reasoning": False})
        assert "reasoning" not in answer.text
        assert "look" in answer.text


async def test_a_filtered_answer_says_so() -> None:
    events = (Started(3, 0, 0.0), Delta("Hi", (), n_tokens=1), Finished("content_filter", Usage(3, 0, 1)))
    for path, body in ((CHAT_PATH, HI), (TEXT_PATH, {"prompt": "x"})):
        answer = (await post(playing(*events), path, body)).json()
        assert answer["choices"][0]["finish_reason"] == "content_filter"


async def test_logprobs_without_ids() -> None:
    given = TokenLogprob(-1, b"Hi", -0.5)
    events = (Started(3, 0, 0.0), Delta("Hi", (), (given,)), Finished("stop", Usage(3, 0, 1)))
    chat = (await post(playing(*events), CHAT_PATH, HI | {"logprobs": True})).json()
    assert chat["choices"][0]["logprobs"]["content"][0]["token"] == "Hi"
    text = (await post(playing(*events), TEXT_PATH, {"prompt": "x", "logprobs": 0})).json()
    assert text["choices"][0]["logprobs"]["tokens"] == ["Hi"]


async def test_tools_and_choices_are_passed_on_and_no_grammar_is_made() -> None:
    prompt = await told({"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False})
    assert (prompt.tool_choice, prompt.single_call) == ("required", True)
    assert [t["function"].get("strict") for t in prompt.tools] == [True, None]
    named = await told({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "sing"}}})
    assert named.tool_choice == "function:sing"
    none = await told({"tools": TOOLS, "tool_choice": "none"})
    assert (none.tool_choice, len(none.tools)) == ("none", 2)
    assert (await told({"reasoning_effort": "low"})).reasoning_effort == "low"
    upstream = Scripted()
    await post(upstream, CHAT_PATH, HI | {"tools": TOOLS, "tool_choice": "required"})
    assert upstream.last.sampling.grammar is None
    assert upstream.last.sampling.seed is None


async def test_a_schema_keeps_its_strictness() -> None:
    upstream = Scripted()
    shape: dict[str, Any] = {"name": "a", "schema": {"type": "object"}}
    for strict in (True, False):
        await post(upstream, CHAT_PATH, HI | {"response_format": {"type": "json_schema", "json_schema": shape | {"strict": strict}}})
        assert upstream.last.sampling.grammar == Grammar("json_schema", '{"type":"object"}', strict)


REFUSED: Sequence[tuple[str, dict[str, Any]]] = [
    (TEXT_PATH, {"prompt": [1, 2]}),
    (TEXT_PATH, {"prompt": [[1, 2], [3]]}),
    (TEXT_PATH, {"prompt": "x", "echo": True, "logprobs": 1}),
    (TEXT_PATH, {"prompt": "x", "echo": True, "max_tokens": 0}),
    ("/tokenize", {"prompt": "x"}),
    ("/tokenize", HI),
    ("/detokenize", {"tokens": [1]}),
]


@pytest.mark.parametrize(("path", "body"), REFUSED)
async def test_what_needs_a_tokenizer_is_refused_in_words(path: str, body: dict[str, Any]) -> None:
    upstream = Scripted()
    answer = await post(upstream, path, body)
    assert answer.status_code == 400
    assert "theirs" in answer.json()["error"]["message"]
    assert not upstream.requests


async def test_what_needs_none_is_not() -> None:
    answer = (await post(Scripted(lambda request: say("b")), TEXT_PATH, {"prompt": "a", "echo": True, "logit_bias": {"77": 1}})).json()
    assert answer["choices"][0]["text"] == "ab"
    async with client_of(app_over(Scripted())) as client:
        (card,) = (await client.get("/v1/models")).json()["data"]
        assert card["id"] == "theirs"
        assert "max_model_len" not in card
