"""Chat templates over OpenAI's messages: what is handed to the template, and what comes of models without one."""

from __future__ import annotations

import json

import pytest

from camshaft.errors import BadRequest
from camshaft.tokenizer import ChatTemplate
from camshaft.types import ChatPrompt

SEEN = "{% for m in messages %}<{{ m | tojson(sort_keys=true) }}>{% endfor %}{{ tools | tojson }}"
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def text(template: ChatTemplate, *messages: dict[str, object], tools: tuple[dict[str, object], ...] = ()) -> str:
    return "".join(part for part, _ in template.render(ChatPrompt(messages, tools)))


def test_a_base_model_says_that_completions_is_the_way_out() -> None:
    for source in (None, ""):
        template = ChatTemplate(source)
        assert not template.can_chat
        with pytest.raises(BadRequest, match="/v1/completions"):
            template.render(ChatPrompt(({"role": "user", "content": "x"},)))


def test_no_messages_are_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="empty"):
        ChatTemplate("x").render(ChatPrompt(()))


def test_null_fields_are_left_out_and_reasoning_has_all_its_names() -> None:
    template = ChatTemplate(SEEN)
    assert text(template, {"role": "user", "content": "a", "name": None}) == '<{"content": "a", "role": "user"}>null'
    seen = text(template, {"role": "assistant", "content": "a", "reasoning": "r"})
    assert json.loads(seen[1:].split(">null")[0]) == {
        "content": "a",
        "role": "assistant",
        "reasoning": "r",
        "reasoning_content": "r",
        "thinking": "r",
    }


def test_arguments_reach_the_template_as_an_object_though_openai_writes_a_string() -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    template = ChatTemplate("{{ tools }}{{ messages[0].tool_calls[0].function.arguments | tojson }}")
    assert text(template, {"role": "assistant", "tool_calls": [call]}) == 'None{"a": 1}'
    call["function"] = {"name": "f", "arguments": "not json"}
    assert text(template, {"role": "assistant", "tool_calls": [call]}) == 'None"not json"'


def test_text_parts_are_joined_unless_the_template_goes_through_them() -> None:
    parts = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    assert text(ChatTemplate("{{ messages[0].content }}"), parts) == "a\nb"
    assert text(ChatTemplate("{% for p in messages[0]['content'] %}[{{ p.text }}]{% endfor %}"), parts) == "[a][b]"
    with pytest.raises(BadRequest, match="type text"):
        text(ChatTemplate("{{ messages[0].content }}"), {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]})


def test_tools_are_described_in_words_where_the_template_has_no_place_for_them() -> None:
    template = ChatTemplate("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}")
    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
    shown = text(
        template,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "21 degrees"},
        tools=(WEATHER,),
    )
    assert shown.startswith("[system] Be brief.\n\n")
    assert '{"name": "weather", "parameters": {"type": "object"}}' in shown
    assert '[assistant] <tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>' in shown
    assert "[user] <tool_response>\n21 degrees\n</tool_response>" in shown


def test_template_kwargs_reach_the_template_but_cannot_replace_messages() -> None:
    template = ChatTemplate("{{ enable_thinking }} {{ messages | length }}")
    prompt = ChatPrompt(({"role": "user", "content": "x"},), template_kwargs={"enable_thinking": False, "messages": [1, 2, 3]})
    assert "".join(part for part, _ in template.render(prompt)) == "False 1"


def test_deep_nesting_is_a_bad_request() -> None:
    deep: object = "x"
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(BadRequest, match="deep"):
        ChatTemplate("{{ tools }}").render(ChatPrompt(({"role": "user", "content": "x", "deep": deep},)))


def test_special_tokens_of_the_model_are_control_and_a_users_are_not() -> None:
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", special_tokens={"bos_token": "<s>"})
    assert template.render(ChatPrompt(({"role": "user", "content": "<s>"},))) == [("<s>", True), ("<s>", False)]


def test_a_message_that_the_template_leaves_out_cannot_be_continued() -> None:
    for template in ("always the same", "{{ messages[0].role }}"):
        with pytest.raises(BadRequest, match="leaves it out"):
            ChatTemplate(template).render(ChatPrompt(({"role": "assistant", "content": "x"},), continue_final_message=True))
    with pytest.raises(BadRequest, match="with text"):
        ChatTemplate("x").render(ChatPrompt(({"role": "assistant", "content": None},), continue_final_message=True))
