"""Grammars for tool calls: llguidance takes them, and they admit right calls only."""

from __future__ import annotations

import json

import llguidance
import pytest

from byte_codec import ByteCodec
from camshaft.errors import BadRequest
from camshaft.sample.grammar import GrammarCompiler
from camshaft.tokenizer.toolgrammar import free_grammar, tool_grammar
from camshaft.tokenizer.tools import HERMES, LLAMA3, MISTRAL, ToolFormat, ToolReader

PLACE = {
    "type": "object",
    "properties": {"city": {"$ref": "#/$defs/name"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"name": {"type": "string"}},
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": 'say "hi"', "parameters": {}}},
]
RIGHT = '{"name": "weather", "arguments": {"city": "Paris"}}'


def admits(source: str, text: str) -> bool:
    """Whether the grammar admits the whole text and may end there."""

    class Tokens:
        eos_token_id = 256
        bos_token_id = None
        tokens = [bytes([i]) for i in range(256)] + [b"<end>"]
        special_token_ids = [256]  # noqa: RUF012

        def __call__(self, text: str | bytes) -> list[int]:
            return list(text if isinstance(text, bytes) else text.encode())

    matcher = llguidance.LLMatcher(llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens())), source)
    assert not matcher.is_error(), matcher.get_error()
    return bool(matcher.try_consume_tokens(list(text.encode())) == len(text.encode()) and matcher.is_accepting())


def written(format: ToolFormat, *objects: str) -> str:
    if format == HERMES:
        return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)
    if format == MISTRAL:
        return f"[TOOL_CALLS][{', '.join(objects)}]"
    return "; ".join(one.replace("arguments", "parameters") for one in objects)


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
def test_a_required_call_is_a_right_call_and_what_it_admits_is_read_back(format: ToolFormat) -> None:
    source = tool_grammar(format, TOOLS, "", single=False).source
    assert admits(source, written(format, RIGHT))
    assert admits(source, written(format, RIGHT, RIGHT))
    assert admits(source, written(format, '{"name": "say \\"hi\\"", "arguments": {"any": [1, null]}}'))
    assert not admits(source, "hello")
    assert not admits(source, written(format, '{"name": "other", "arguments": {}}'))
    assert not admits(source, written(format, '{"name": "weather", "arguments": {"city": 7}}'))
    reader = ToolReader(format, ("weather",))
    found = [*reader.feed(written(format, RIGHT)), *reader.end()]
    assert [(p.kind, p.text) for p in found] == [("call", "weather"), ("arguments", '{"city": "Paris"}')]


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
def test_a_named_tool_is_the_only_one_and_single_means_one(format: ToolFormat) -> None:
    source = tool_grammar(format, TOOLS, "weather", single=True).source
    assert admits(source, written(format, RIGHT))
    assert not admits(source, written(format, RIGHT, RIGHT))
    assert not admits(source, written(format, '{"name": "say \\"hi\\"", "arguments": {}}'))
    with pytest.raises(BadRequest, match="'nope'"):
        tool_grammar(format, TOOLS, "nope", single=True)


@pytest.mark.parametrize("format", [HERMES, MISTRAL])
def test_a_free_answer_may_be_anything_but_a_wrong_call(format: ToolFormat) -> None:
    grammar = free_grammar(format, TOOLS)
    assert grammar is not None
    for text in ("", "hello <tool>", written(format, RIGHT), "see: " + written(format, RIGHT) + "\nor " + written(format, RIGHT)):
        assert admits(grammar.source, text), text
    assert not admits(grammar.source, written(format, '{"name": "other", "arguments": {}}'))
    assert free_grammar(LLAMA3, TOOLS) is None


def test_the_engines_own_compiler_takes_them() -> None:
    compiler = GrammarCompiler(ByteCodec(), 260)
    for format in (HERMES, LLAMA3, MISTRAL):
        assert any(compiler.matcher(tool_grammar(format, TOOLS, "", single=False)).mask)


def test_blanks_cannot_run_on_for_ever() -> None:
    source = tool_grammar(HERMES, TOOLS, "weather", single=True).source
    assert not admits(source, "<tool_call>\n" + json.dumps(json.loads(RIGHT), indent=1) + "\n</tool_call>")
