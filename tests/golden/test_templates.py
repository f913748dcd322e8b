"""Chat templates render exactly as transformers renders them; the stored texts come from make_templates.py."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camshaft.errors import BadRequest
from camshaft.tokenizer import ChatTemplate
from camshaft.types import ChatPrompt
from golden.conversations import FAMILIES, HOSTILE, SPECIAL_TOKENS, Conversation

HERE = Path(__file__).parent / "templates"
RENDERED: dict[str, list[str | None]] = json.loads((HERE / "rendered.json").read_text())
CASES = [(family, i) for family in FAMILIES for i in range(len(FAMILIES[family]))]
# A conversation of each family whose control text shows how many turns the template itself opens.
TURN_MARK = {
    "smollm2": "<|im_start|>",
    "llama3": "<|start_header_id|>",
    "qwen2": "<|im_start|>",
    "qwen3": "<|im_start|>",
    "gemma3": "<start_of_turn>",
}


def template(family: str) -> ChatTemplate:
    now = lambda: datetime.datetime(2026, 1, 2)  # noqa: E731
    return ChatTemplate((HERE / f"{family}.jinja").read_text(), special_tokens=SPECIAL_TOKENS[family], now=now)


TEMPLATES = {family: template(family) for family in FAMILIES}


def prompt(one: Conversation) -> ChatPrompt:
    return ChatPrompt(
        messages=tuple(one["messages"]),
        tools=tuple(one.get("tools", ())),
        add_generation_prompt=one.get("add_generation_prompt", True),
        template_kwargs=one.get("template_kwargs", {}),
        continue_final_message=one.get("continue_final_message", False),
    )


@pytest.mark.parametrize(("family", "i"), CASES)
def test_a_conversation_renders_as_transformers_renders_it(family: str, i: int) -> None:
    expected = RENDERED[family][i]
    if expected is None:
        with pytest.raises(BadRequest, match="chat template refused"):
            TEMPLATES[family].render(prompt(FAMILIES[family][i]))
        return
    parts = TEMPLATES[family].render(prompt(FAMILIES[family][i]))
    assert "".join(text for text, _ in parts) == expected


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from (key, *strings(item))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from strings(item)


@pytest.mark.parametrize(("family", "i"), [c for c in CASES if RENDERED[c[0]][c[1]] is not None])
def test_no_word_of_a_user_is_control(family: str, i: int) -> None:
    one = FAMILIES[family][i]
    controls = [text for text, control in TEMPLATES[family].render(prompt(one)) if control]
    for text in strings([one["messages"], one.get("tools", []), one.get("template_kwargs", {})]):
        # A name that is a mark and nothing else is also what the template itself writes.
        if text in HOSTILE or ("<|" in text and " " in text):
            assert not any(text in control for control in controls)


@pytest.mark.parametrize("family", sorted(TURN_MARK))
@pytest.mark.parametrize("text", HOSTILE)
def test_the_template_opens_as_many_turns_whatever_the_user_writes(family: str, text: str) -> None:
    def turns(content: str) -> int:
        parts = TEMPLATES[family].render(ChatPrompt(({"role": "user", "content": content},)))
        return sum(part.count(TURN_MARK[family]) for part, control in parts if control)

    assert turns(text) == turns("hello")
