"""Answers and chunks validate against OpenAI's own description of its API, but for what is listed here with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from api_doubles import CHAT_PATH, HI, TEXT_PATH, Scripted, app_over, chunks_of, client_of, say, scored
from camshaft.types import Delta, Finished, Request, Scored, Started, Usage
from openapi_schemas import problems
from shared_data import shared_data_or_skip

# OpenAI's server itself sends these, whatever its description says.
EXCEPTIONS = {
    "choices.*.finish_reason: None is not of type 'string'",  # a completion's chunks before its last
    "choices.*.finish_reason: None is not one of ['stop', 'length', 'content_filter']",
    "usage: None is not of type 'object'",  # in every chunk but the last, where usage is asked for
}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


@pytest.fixture
def description() -> Path:
    return shared_data_or_skip() / "openapi" / "openapi.yaml"


def check(path: Path, name: str, value: Any) -> None:
    if name == "CreateCompletionResponse":
        _drop_first_nulls(value)
    found = {p for p in problems(path, name, value) if not any(p.startswith(e) for e in EXCEPTIONS)}
    assert not found, found


def _drop_first_nulls(completion: dict[str, Any]) -> None:
    """Nothing predicts a prompt's first token, so that its entries are null, which the description does not foresee."""
    for log in (choice["logprobs"] for choice in completion["choices"]):
        if log is not None and log["token_logprobs"][0] is None:
            assert log["top_logprobs"][0] is None
            for entries in log.values():
                del entries[0]


def with_logprobs(request: Request) -> list[Any]:
    entries = (scored(b"a", -0.5, top=((b"a", -0.5), (b"\xf0", -1.0))), scored(b"\xf0", -3.0))
    prompt = [Scored((scored(b"x", None), scored(b"y", -1.0)))] if request.sampling.prompt_logprobs is not None else []
    return [Started(2, 1, 0.0), *prompt, Delta("a", (1, 2), entries), Finished("length", Usage(2, 1, 2), None)]


CALLS = [
    (say, {}),
    (lambda: say("a", "b", matched="END"), {"n": 2}),
    (lambda: say("<call>", "weather {}", "</call>", "<call>", "weather {}", "</call>"), {"tools": TOOLS}),
    (lambda: say("<think>", "hm", "</think>", "Yes."), {"chat_template_kwargs": {"enable_thinking": True}}),
]


@pytest.mark.parametrize(("events", "fields"), CALLS)
async def test_chat_answers_and_chunks(description: Path, events: Any, fields: dict[str, Any]) -> None:
    async with client_of(app_over(Scripted(lambda _: events()))) as client:
        whole = await client.post(CHAT_PATH, json=HI | fields)
        stream = await client.post(CHAT_PATH, json=HI | fields | {"stream": True, "stream_options": {"include_usage": True}})
    check(description, "CreateChatCompletionResponse", whole.json())
    for chunk in chunks_of(stream.text):
        check(description, "CreateChatCompletionStreamResponse", chunk)


async def test_chat_logprobs(description: Path) -> None:
    async with client_of(app_over(Scripted(with_logprobs))) as client:
        fields = HI | {"logprobs": True, "top_logprobs": 2}
        check(description, "CreateChatCompletionResponse", (await client.post(CHAT_PATH, json=fields)).json())
        for chunk in chunks_of((await client.post(CHAT_PATH, json=fields | {"stream": True})).text):
            check(description, "CreateChatCompletionStreamResponse", chunk)


@pytest.mark.parametrize("fields", [{}, {"logprobs": 2}, {"logprobs": 2, "echo": True}, {"n": 2, "prompt": ["a", "b"]}])
async def test_completions(description: Path, fields: dict[str, Any]) -> None:
    async with client_of(app_over(Scripted(with_logprobs))) as client:
        body = {"prompt": "xy"} | fields
        check(description, "CreateCompletionResponse", (await client.post(TEXT_PATH, json=body)).json())
        stream = await client.post(TEXT_PATH, json=body | {"stream": True, "stream_options": {"include_usage": True}})
        for chunk in chunks_of(stream.text):
            check(description, "CreateCompletionResponse", chunk)


async def test_models_and_errors(description: Path) -> None:
    async with client_of(app_over(Scripted())) as client:
        check(description, "ListModelsResponse", (await client.get("/v1/models")).json())
        check(description, "Model", (await client.get("/v1/models/tiny")).json())
        for reply in (await client.get("/v1/models/x"), await client.get("/nope"), await client.post(CHAT_PATH, json={})):
            check(description, "ErrorResponse", reply.json())


async def test_the_check_can_fail(description: Path) -> None:
    async with client_of(app_over(Scripted())) as client:
        answer = (await client.post(CHAT_PATH, json=HI)).json()
    for broken in (answer | {"choices": 5}, answer | {"object": "chat"}, {k: v for k, v in answer.items() if k != "created"}):
        assert problems(description, "CreateChatCompletionResponse", broken)
    del answer["choices"][0]["message"]["refusal"]
    assert problems(description, "CreateChatCompletionResponse", answer)
