"""Tool calls while they stream: whole, in order, and nothing lost where there is none."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.tokenizer.jsonscan import JsonScan
from camshaft.tokenizer.pieces import Piece
from camshaft.tokenizer.tools import HERMES, LLAMA3, MISTRAL, ToolFormat, ToolReader, detect


def pieces_of(format: ToolFormat, text: str, sizes: list[int] = [], names: tuple[str, ...] = ()) -> list[Piece]:
    reader = ToolReader(format, names)
    found, at = [], 0
    for size in [*sizes, len(text)]:
        found.extend(reader.feed(text[at : at + size]))
        at += size
    return [*found, *reader.end()]


def read(format: ToolFormat, text: str, sizes: list[int] = [], names: tuple[str, ...] = ()) -> tuple[str, list[tuple[str, str]]]:
    """The content, and (name, arguments) of each call."""
    content, calls = "", list[tuple[str, str]]()
    for piece in pieces_of(format, text, sizes, names):
        if piece.kind == "content":
            content += piece.text
        elif piece.kind == "call":
            assert piece.number == len(calls)
            calls.append((piece.text, ""))
        else:
            name, arguments = calls[piece.number]
            calls[piece.number] = (name, arguments + piece.text)
    return content, calls


def spelled(format: ToolFormat, calls: list[tuple[str, dict[str, object]]]) -> str:
    key = "parameters" if format == LLAMA3 else "arguments"
    objects = [json.dumps({"name": name, key: arguments}) for name, arguments in calls]
    if format == HERMES:
        return "\n".join(f"<tool_call>\n{one}\n</tool_call>" for one in objects)
    return f"[TOOL_CALLS] [{', '.join(objects)}]" if format == MISTRAL else "; ".join(objects)


ONE_AND_TWO: list[tuple[str, dict[str, object]]] = [("f", {"a": 'x "}{" \\ é\n', "b": [1, {"c": None}]}), ("g", {})]


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
@settings(max_examples=40)
@given(sizes=st.lists(st.integers(1, 12), max_size=80))
def test_parallel_calls_have_the_right_numbers_and_valid_arguments(format: ToolFormat, sizes: list[int]) -> None:
    content, calls = read(format, spelled(format, ONE_AND_TWO), sizes)
    assert content == ""
    assert [(name, json.loads(arguments)) for name, arguments in calls] == ONE_AND_TWO


@pytest.mark.parametrize("format", [HERMES, MISTRAL])
def test_content_before_a_call_is_content_and_blanks_around_it_are_nobodys(format: ToolFormat) -> None:
    text = "Let me see.\n\n" + spelled(format, ONE_AND_TWO) + "\n"
    for sizes in ([], [1] * len(text)):
        content, calls = read(format, text, sizes)
        assert content == "Let me see."
        assert len(calls) == 2


def test_arguments_stream_as_they_come_not_in_one_lump() -> None:
    text = spelled(HERMES, [("f", {"text": "a long argument " * 10})])
    found = pieces_of(HERMES, text, [4] * len(text))
    arguments = [p for p in found if p.kind == "arguments"]
    assert found[0] == Piece("call", "f", 0)
    assert len(arguments) > 20
    assert json.loads("".join(p.text for p in arguments)) == {"text": "a long argument " * 10}


@pytest.mark.parametrize(
    "text",
    [
        "no call at all",
        "a < b and <tool> and <tool_",
        "<tool_call>nothing like it</tool_call>",
        "<tool_call>\n{'name': 'f'}\n</tool_call>",
        '<tool_call>\n{"name": "f", "arguments": [1]}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": 7}\n</tool_call>',
        '<tool_call>\n{"name": 1, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"arguments": {"a": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "f", "arguments": {a: 1}}\n</tool_call>',
        '<tool_call>\n{"name": "unknown", "arguments": {"a": 1}}\n</tool_call>',
        '<tool_call>\n{"name": "f"',
        "<tool_call>",
        '<tool_call>{"name": "f", "x": ' + "[" * 200 + "1" + "]" * 200 + "}</tool_call>",
        "  leading and trailing  \n",
    ],
)
def test_what_only_looks_like_a_call_is_content_and_none_of_it_is_lost(text: str) -> None:
    for sizes in ([], [1] * len(text)):
        assert read(HERMES, text, sizes, names=("f", "g")) == (text, [])


def test_a_call_after_a_false_one_is_still_found() -> None:
    content, calls = read(HERMES, 'x <tool_call>oops <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call> done')
    assert content == "x <tool_call>oops done"
    assert calls == [("f", '{"a": 1}')]


def test_missing_arguments_are_an_empty_object_never_none() -> None:
    assert read(HERMES, '<tool_call>{"name": "f"}</tool_call>') == ("", [("f", "{}")])


def test_arguments_before_the_name_and_arguments_in_a_string_are_understood() -> None:
    assert read(HERMES, '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>') == ("", [("f", '{"a": 1}')])
    assert read(HERMES, '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>') == ("", [("f", '{"a": 1}')])


def test_a_call_cut_short_keeps_what_was_sent() -> None:
    content, calls = read(HERMES, '<tool_call>{"name": "f", "arguments": {"a": "xy')
    assert (content, calls) == ("", [("f", '{"a": "xy')])


def test_a_call_that_breaks_after_it_was_sent_gives_its_rest_as_content() -> None:
    content, calls = read(HERMES, '<tool_call>{"name": "f", "arguments": {"a": 1,, "b": 2}}</tool_call>')
    assert calls == [("f", '{"a": 1,')]
    assert content == ', "b": 2}}</tool_call>'


def test_a_missing_end_mark_is_forgiven() -> None:
    assert read(HERMES, '<tool_call>{"name": "f", "arguments": {}} and so on') == ("and so on", [("f", "{}")])


def test_a_plain_answer_of_a_model_without_marks_stays_plain() -> None:
    for text in ('{"answer": 42}', "Hello {name}", "[1, 2]", '{"name": "f"', ' {"name": "nope", "parameters": {}}'):
        for sizes in ([], [1] * len(text)):
            assert read(LLAMA3, text, sizes, names=("f",)) == (text, [])
    assert read(LLAMA3, '\n{"name": "f", "parameters": {"a": 1}}') == ("", [("f", '{"a": 1}')])


NOISE = st.lists(
    st.sampled_from(
        [
            "<tool_call>",
            "</tool_call>",
            '{"name": "f", "arguments": {"a": "b"}}',
            "{",
            "}",
            '"',
            "[TOOL_CALLS]",
            "[",
            "]",
            ",",
            ";",
            " ",
            "\n",
            "x",
            '"name"',
            ":",
        ]
    ),
    max_size=14,
).map("".join)


@pytest.mark.parametrize("format", [HERMES, LLAMA3, MISTRAL])
@settings(max_examples=60)
@given(text=NOISE, sizes=st.lists(st.integers(1, 7), max_size=60))
def test_noise_gives_the_same_streamed_or_whole(format: ToolFormat, text: str, sizes: list[int]) -> None:
    assert read(format, text, sizes) == read(format, text)
    content, calls = read(format, text)
    if not calls:
        assert content == text


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=4), st.booleans())
def test_every_json_object_is_followed_to_its_end(value: dict[str, object], ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1)
    scan = JsonScan()
    assert all(scan.push(char) for char in text)
    assert scan.state == "done"


@given(st.text(alphabet='{}[]",:0123.-+eE\\untrfalsx \n', max_size=14))
def test_what_is_followed_to_its_end_is_json(text: str) -> None:
    scan = JsonScan()
    for i, char in enumerate(text):
        if not scan.push(char):
            return
        if scan.state == "done":
            json.loads(text[: i + 1], strict=True)
            return


@pytest.mark.parametrize(
    ("template", "format"),
    [
        ("{{ '<tool_call>' }}", HERMES),
        ("[TOOL_CALLS]", MISTRAL),
        ('<|start_header_id|> {"name": "", "parameters": {}}', LLAMA3),
        ("nothing", HERMES),
    ],
)
def test_the_format_is_told_from_the_template(template: str, format: ToolFormat) -> None:
    assert detect(template) == format
