"""Requests as another server is asked: what every server knows, what only some do, what none does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from camshaft.cluster.foreign import DIALECTS
from camshaft.cluster.openai_request import question
from camshaft.errors import BadRequest
from camshaft.types import ChatPrompt, Grammar, Prompt, Request, Resume, SamplingParams, TextPrompt, TokenPrompt

HI = ChatPrompt(({"role": "user", "content": "hi"},))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def asked(sampling: SamplingParams | None = None, prompt: Prompt = HI, dialect: str = "compatible", **more: Any) -> dict[str, Any]:
    request = Request(id="r", prompt=prompt, sampling=sampling or SamplingParams(), **more)
    found = question(request, "m", DIALECTS[dialect])
    assert found.path == ("/chat/completions" if isinstance(prompt, ChatPrompt) else "/completions")
    return dict(msgspec.json.decode(found.body))


def test_what_nobody_set_is_not_sent() -> None:
    assert asked() == {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": list(HI.messages)}


def test_everything_that_openai_knows_is_sent() -> None:
    given = SamplingParams(
        temperature=0.5,
        top_p=0.9,
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias=((7, -5.0),),
        seed=3,
        max_tokens=9,
        stop=("a", "b"),
        logprobs=2,
    )
    want = {
        "temperature": 0.5,
        "top_p": 0.9,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "logit_bias": {"7": -5.0},
        "seed": 3,
        "stop": ["a", "b"],
    }
    chat, text = asked(given), asked(given, TextPrompt("x"))
    assert {**chat, **want, "max_tokens": 9, "logprobs": True, "top_logprobs": 2} == chat
    assert {**text, **want, "max_tokens": 9, "logprobs": 2, "prompt": "x"} == text
    assert asked(given, dialect="openai")["max_completion_tokens"] == 9


def test_choices_of_one_call_differ_in_their_seed() -> None:
    seeds = [asked(SamplingParams(seed=5, n=2), choice=i)["seed"] for i in range(2)]
    assert seeds == [5, 6]
    assert asked(SamplingParams(seed=(1 << 63) - 1), choice=1)["seed"] == 0


EXTRAS = SamplingParams(
    top_k=5,
    min_p=0.1,
    repetition_penalty=1.2,
    min_tokens=1,
    stop_token_ids=(2,),
    include_stop=True,
    ignore_eos=True,
    skip_special_tokens=False,
)


def test_extras_go_to_servers_that_know_them() -> None:
    body = asked(EXTRAS, dialect="vllm", cache_salt="s")
    assert (body["top_k"], body["min_p"], body["repetition_penalty"], body["min_tokens"], body["stop_token_ids"]) == (5, 0.1, 1.2, 1, [2])
    assert (body["include_stop_str_in_output"], body["ignore_eos"], body["skip_special_tokens"]) == (True, True, False)
    assert (body["temperature"], body["cache_salt"]) == (1.0, "s")
    llama = asked(SamplingParams(top_k=5, repetition_penalty=1.2), dialect="llama.cpp", cache_salt="s")
    assert (llama["top_k"], llama["repeat_penalty"]) == (5, 1.2)
    assert "cache_salt" not in llama


@pytest.mark.parametrize(
    ("sampling", "param"),
    [
        (SamplingParams(top_k=5), "top_k"),
        (SamplingParams(min_p=0.1), "min_p"),
        (SamplingParams(ignore_eos=True), "ignore_eos"),
        (SamplingParams(prompt_logprobs=0), "echo"),
        (SamplingParams(temperature=float("nan")), "temperature"),
    ],
)
def test_what_a_server_does_not_know_is_refused_by_name(sampling: SamplingParams, param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        asked(sampling)
    assert caught.value.param == param


def test_tools_and_how_they_are_chosen() -> None:
    def chosen(choice: str, *, single: bool = False) -> dict[str, Any]:
        return asked(prompt=ChatPrompt(HI.messages, (TOOL,), tool_choice=choice, single_call=single))

    assert "tool_choice" not in chosen("")
    assert chosen("required", single=True).items() >= {"tool_choice": "required", "parallel_tool_calls": False}.items()
    assert chosen("function:f")["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chosen("none")["tools"] == [TOOL]
    assert "tool_choice" not in asked(prompt=ChatPrompt(HI.messages, tool_choice="none"))


def test_constraints_are_mapped_or_refused() -> None:
    schema = Grammar("json_schema", '{"type":"object"}', strict=False)
    assert asked(SamplingParams(grammar=Grammar("json_object")))["response_format"] == {"type": "json_object"}
    assert asked(SamplingParams(grammar=schema))["response_format"]["json_schema"] == {
        "name": "answer",
        "schema": {"type": "object"},
        "strict": False,
    }
    within = asked(SamplingParams(grammar=schema), dialect="llama.cpp")["response_format"]
    assert within == {"type": "json_object", "schema": {"type": "object"}}
    regex = SamplingParams(grammar=Grammar("regex", "a+"))
    assert asked(regex, dialect="vllm")["structured_outputs"] == {"regex": "a+"}
    with pytest.raises(BadRequest, match="regex"):
        asked(regex)


def test_templates_and_reasoning() -> None:
    history = ({"role": "assistant", "content": "x", "reasoning_content": "because"}, {"role": "user", "content": "hi"})
    assert asked(prompt=ChatPrompt(history))["messages"][0] == {"role": "assistant", "content": "x"}
    assert asked(prompt=ChatPrompt(history), dialect="vllm")["messages"][0] == history[0]
    assert asked(prompt=ChatPrompt(HI.messages, reasoning_effort="low"))["reasoning_effort"] == "low"
    thinking = ChatPrompt(HI.messages, template_kwargs={"enable_thinking": False})
    assert asked(prompt=thinking, dialect="vllm")["chat_template_kwargs"] == {"enable_thinking": False}
    with pytest.raises(BadRequest, match="chat_template_kwargs"):
        asked(prompt=thinking)


def test_prompts() -> None:
    assert asked(prompt=TokenPrompt((1, 2)))["prompt"] == [1, 2]
    assert asked(prompt=TextPrompt("x", add_special_tokens=False), dialect="vllm")["add_special_tokens"] is False
    for prompt in (TokenPrompt(()), TextPrompt("")):
        with pytest.raises(BadRequest, match="empty"):
            asked(prompt=prompt)
    with pytest.raises(BadRequest, match="carried on"):
        asked(resume=Resume((1,), 1))
