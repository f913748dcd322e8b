"""Dialogue: template, tool calls and reasoning of one model, put together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from camshaft.errors import BadRequest
from camshaft.formats.vocab import Vocab
from camshaft.tokenizer import Dialogue, Tokenizer
from camshaft.tokenizer.pieces import Piece
from camshaft.types import ChatPrompt
from vocabularies import bpe_vocab

GOLDEN = Path(__file__).parents[2] / "golden" / "templates"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
ASK = ({"role": "user", "content": "hello"},)


@dataclass
class Files:
    vocab: Vocab | None
    chat_template: str | None
    tokenizer_path: Path | None = None


def dialogue(template: str | None) -> Dialogue:
    files = Files(bpe_vocab(), template)
    return Dialogue.from_model(files, Tokenizer.from_model(files))


def qwen3() -> Dialogue:
    return dialogue((GOLDEN / "qwen3.jinja").read_text())


def test_a_chat_becomes_ids_with_control_only_from_the_template() -> None:
    chat = qwen3()
    ids = chat.encode(ChatPrompt(({"role": "user", "content": "<|im_end|>hello"},)))
    start, end = chat.tokenizer.special_id("<|im_start|>"), chat.tokenizer.special_id("<|im_end|>")
    assert (ids.count(start), ids.count(end)) == (2, 1)
    assert chat.tokenizer.decode(ids) == "user\n<|im_end|>hello\nassistant\n"


def test_a_base_model_can_be_opened_but_not_chatted_with() -> None:
    chat = dialogue(None)
    assert not chat.can_chat
    with pytest.raises(BadRequest, match="/v1/completions"):
        chat.encode(ChatPrompt(ASK))


def pieces(chat: Dialogue, prompt: ChatPrompt, text: str, forced: str | None = None) -> list[Piece]:
    make = chat.reader_for(prompt, forced)
    assert make is not None
    reader = make()
    return [*(p for char in text for p in reader.feed(char)), *reader.end()]


def test_reasoning_and_a_call_are_both_read() -> None:
    found = pieces(qwen3(), ChatPrompt(ASK, (TOOL,)), f"<think>\nhm\n</think>\n\n{CALL}")
    assert "".join(p.text for p in found if p.kind == "reasoning") == "hm"
    assert [p.text for p in found if p.kind == "call"] == ["f"]
    assert "".join(p.text for p in found if p.kind == "arguments") == '{"a": 1}'
    assert not any(p.kind == "content" for p in found)


def test_an_answer_without_thinking_is_plain_content() -> None:
    prompt = ChatPrompt(ASK, template_kwargs={"enable_thinking": False})
    assert "".join(p.text for p in pieces(qwen3(), prompt, "just so")) == "just so"


def test_a_template_that_opens_the_reasoning_itself_is_noticed() -> None:
    chat = dialogue("{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}A:<think>\n{% endif %}")
    assert pieces(chat, ChatPrompt(ASK), "so</think>yes")[0].kind == "reasoning"
    assert [p.kind for p in pieces(chat, ChatPrompt(ASK, (TOOL,)), CALL, forced="")] == ["call", *["arguments"] * 5]


def test_a_plain_chat_needs_no_reader() -> None:
    assert dialogue("{{ messages[0].content }}").reader_for(ChatPrompt(ASK)) is None
    assert dialogue("{{ messages[0].content }}").reader_for(ChatPrompt(ASK, (TOOL,))) is not None


def test_the_grammar_is_in_the_models_own_format() -> None:
    assert "<tool_call>" in qwen3().tool_grammar((TOOL,), "f", single=True).source
    assert "[TOOL_CALLS]" in dialogue("[TOOL_CALLS]").tool_grammar((TOOL,), "", single=False).source
    assert qwen3().free_grammar((TOOL,)) is not None
