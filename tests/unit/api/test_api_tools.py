"""Tool calls and reasoning: whole, streamed, forced, and both in one answer."""

from __future__ import annotations

import json
from typing import Any

from api_doubles import CHAT_PATH, HI, ByteTokenizer, Scripted, app_over, chunks_of, client_of, say
from camshaft.tokenizer.chat import ChatTemplate
from camshaft.tokenizer.dialogue import Dialogue
from camshaft.types import ChatPrompt, Request

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "clock"}},
]
PARIS, ROME = '{"city": "Paris"}', '{"city": "Rome"}'


async def ask(upstream: Scripted, **fields: Any) -> dict[str, Any]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI | fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json()["choices"][0])


async def stream(upstream: Scripted, **fields: Any) -> list[dict[str, Any]]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI | fields | {"stream": True})
    assert reply.status_code == 200, reply.text
    return [c["choices"][0] for c in chunks_of(reply.text)]


def joined(choices: list[dict[str, Any]]) -> tuple[str, str, list[dict[str, str]]]:
    """(content, reasoning, calls) as a client puts a stream together."""
    content = reasoning = ""
    calls: list[dict[str, str]] = []
    for delta in (c["delta"] for c in choices):
        content += delta.get("content") or ""
        reasoning += delta.get("reasoning_content") or ""
        for call in delta.get("tool_calls", ()):
            if call["index"] == len(calls):
                assert call["type"] == "function"
                calls.append({"id": call["id"], "name": call["function"]["name"], "arguments": ""})
            else:
                assert "id" not in call
                assert "name" not in call["function"]
            assert isinstance(call["function"]["arguments"], str), "arguments are a string, never null"
            calls[call["index"]]["arguments"] += call["function"]["arguments"]
    return content, reasoning, calls


async def test_a_tool_call_is_a_message_of_its_own_kind() -> None:
    choice = await ask(Scripted(lambda _: say("<call>", f"weather {PARIS}", "</call>")), tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["id"].startswith("call_")
    assert call["type"] == "function"
    assert call["function"] == {"name": "weather", "arguments": PARIS}


async def test_streamed_calls_come_in_several_deltas_under_their_own_index_and_make_valid_json() -> None:
    script = Scripted(lambda _: say("Let me see. ", "<call>", f"weather {PARIS}", "</call>", "<call>", f"weather {ROME}", "</call>"))
    choices = await stream(script, tools=TOOLS)
    content, _, calls = joined(choices)
    assert content == "Let me see. "
    assert [json.loads(c["arguments"]) for c in calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert len({c["id"] for c in calls}) == 2
    assert sum("tool_calls" in c["delta"] for c in choices) > 4, "one lump instead of deltas"
    assert [c["finish_reason"] for c in choices if c["finish_reason"]] == ["tool_calls"]
    assert choices[-1]["delta"] == {}


async def test_a_call_cut_by_max_tokens_says_length() -> None:
    script = Scripted(lambda _: say("<call>", 'weather {"ci', reason="length"))
    assert (await ask(script, tools=TOOLS))["finish_reason"] == "length"
    assert (await stream(script, tools=TOOLS))[-1]["finish_reason"] == "length"


async def test_reasoning_and_a_call_in_one_answer_are_told_apart() -> None:
    script = Scripted(lambda _: say("<think>", "Which city?", "</think>", "Here:", "<call>", f"weather {PARIS}", "</call>"))
    choice = await ask(script, tools=TOOLS)
    assert choice["message"]["reasoning_content"] == "Which city?"
    assert choice["message"]["content"] == "Here:"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == PARIS
    content, reasoning, calls = joined(await stream(script, tools=TOOLS))
    assert (content, reasoning, calls[0]["arguments"]) == ("Here:", "Which city?", PARIS)


async def test_reasoning_can_be_left_out() -> None:
    script = Scripted(lambda _: say("<think>", "hm", "</think>", "Yes."))
    fields = {"chat_template_kwargs": {"enable_thinking": True}, "include_reasoning": False}
    assert "reasoning_content" not in (await ask(script, **fields))["message"]
    assert joined(await stream(script, **fields))[:2] == ("Yes.", "")


async def test_no_effort_turns_thinking_off_unless_the_template_is_told_otherwise() -> None:
    upstream = Scripted()
    await ask(upstream, reasoning_effort="none")
    assert upstream.last.prompt.template_kwargs == {"enable_thinking": False}  # type: ignore[union-attr]
    await ask(upstream, reasoning_effort="none", chat_template_kwargs={"enable_thinking": True})
    assert upstream.last.prompt.template_kwargs == {"enable_thinking": True}  # type: ignore[union-attr]


async def test_tool_choice_shapes_prompt_and_grammar() -> None:
    upstream = Scripted()

    async def seen(**fields: Any) -> tuple[int, str | None]:
        await ask(upstream, tools=TOOLS, **fields)
        prompt = upstream.last.prompt
        assert isinstance(prompt, ChatPrompt)
        grammar = upstream.last.sampling.grammar
        return len(prompt.tools), grammar.source if grammar else None

    assert await seen() == (2, None)
    assert await seen(tool_choice="auto") == (2, None)
    assert await seen(tool_choice="none") == (0, None)
    assert await seen(tool_choice="required") == (2, "call:any:False:2")
    assert await seen(tool_choice="required", parallel_tool_calls=False) == (2, "call:any:True:2")
    assert await seen(tool_choice={"type": "function", "function": {"name": "clock"}}) == (2, "call:clock:False:2")


async def test_a_strict_tool_holds_free_calls_to_its_schema_unless_a_format_is_asked_for() -> None:
    upstream = Scripted()
    strict = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA, "strict": True}}]
    await ask(upstream, tools=strict)
    assert upstream.last.sampling.grammar is not None
    assert upstream.last.sampling.grammar.source == "free:1"
    await ask(upstream, tools=strict, response_format={"type": "json_object"})
    assert upstream.last.sampling.grammar.kind == "json_object"


async def test_a_tool_without_parameters_is_shown_as_taking_none() -> None:
    upstream = Scripted()
    await ask(upstream, tools=TOOLS)
    assert upstream.last.prompt.tools == (  # type: ignore[union-attr]
        {"type": "function", "function": {"name": "weather", "description": "The weather.", "parameters": SCHEMA}},
        {"type": "function", "function": {"name": "clock", "description": "", "parameters": {"type": "object", "properties": {}}}},
    )


async def test_the_real_dialogue_serves_calls_and_reasoning_cut_anywhere() -> None:
    source = "<tool_call><think>{% for m in messages %}{{ m.content }}{% endfor %}{{ tools }}"
    dialogue = Dialogue(ByteTokenizer(), ChatTemplate(source))  # type: ignore[arg-type]
    whole = '<think>\nhm\n</think>\n\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'

    def script(_: Request) -> Any:
        return say(*whole)

    for streaming in (False, True):
        async with client_of(app_over(Scripted(script), chat=dialogue)) as client:
            reply = await client.post(CHAT_PATH, json=HI | {"tools": TOOLS, "stream": streaming})
        assert reply.status_code == 200, reply.text
        if streaming:
            content, reasoning, calls = joined([c["choices"][0] for c in chunks_of(reply.text)])
        else:
            message = reply.json()["choices"][0]["message"]
            content, reasoning = message["content"] or "", message["reasoning_content"]
            calls = [c["function"] for c in message["tool_calls"]]
        assert (content, reasoning) == ("", "hm")
        assert [(c["name"], json.loads(c["arguments"])) for c in calls] == [("weather", {"city": "Paris"})]
