"""`<think>...</think>` apart from the answer, however the text is cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.tokenizer import StopMatcher
from camshaft.tokenizer.pieces import ContentReader, Piece, Reader
from camshaft.tokenizer.reasoning import ReasoningReader
from camshaft.tokenizer.tools import HERMES, ToolReader


def collected(pieces: list[Piece]) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in pieces:
        name = piece.kind if piece.kind in ("content", "reasoning") else f"{piece.kind}{piece.number}"
        found[name] = found.get(name, "") + piece.text
    return found


def read(text: str, sizes: list[int] = [], *, begun: bool = False, inner: Reader | None = None) -> dict[str, str]:
    reader = ReasoningReader(inner or ContentReader(), begun=begun)
    pieces, at = [], 0
    for size in [*sizes, len(text)]:
        pieces.extend(reader.feed(text[at : at + size]))
        at += size
    pieces.extend(reader.end())
    assert all(piece.text or piece.kind == "arguments" for piece in pieces)
    return collected(pieces)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm\n</think>\n\nyes", {"reasoning": "hm", "content": "yes"}),
        ("\n<think>a\n\nb</think>c", {"reasoning": "a\n\nb", "content": "c"}),
        ("<think>\n\n</think>\n\nyes", {"content": "yes"}),
        ("no thought", {"content": "no thought"}),
        ("<thinking> is a word", {"content": "<thinking> is a word"}),
        ("say <think>not first</think>", {"content": "say <think>not first</think>"}),
        ("<think>cut sho", {"reasoning": "cut sho"}),
        ("<think>cut</thi", {"reasoning": "cut</thi"}),
        ("<think>a < b </ think></think>x", {"reasoning": "a < b </ think>", "content": "x"}),
        ("<th", {"content": "<th"}),
        ("  ", {"content": "  "}),
        ("", {}),
    ],
)
def test_reasoning_is_told_from_content(text: str, expected: dict[str, str]) -> None:
    assert read(text) == expected
    assert read(text, [1] * len(text)) == expected


def test_a_prompt_that_opened_the_reasoning_is_gone_on_with() -> None:
    assert read("so\n</think>\n\nyes", begun=True) == {"reasoning": "so", "content": "yes"}
    assert read("so on", begun=True) == {"reasoning": "so on"}


def test_the_end_mark_split_over_steps_never_shows() -> None:
    reader = ReasoningReader(ContentReader(), begun=True)
    shown = [piece for part in ("a</", "thi", "nk", ">", "\n", "\nb") for piece in reader.feed(part)]
    assert shown == [Piece("reasoning", "a"), Piece("content", "b")]


PARTS = st.lists(st.sampled_from(["<think>", "</think>", "\n", "a", " ", "<", "<tool_call>", "</th"]), max_size=10).map("".join)


@given(PARTS, st.lists(st.integers(1, 5), max_size=30), st.booleans())
def test_the_result_is_the_same_streamed_or_whole(text: str, sizes: list[int], begun: bool) -> None:
    assert read(text, sizes, begun=begun) == read(text, begun=begun)


@given(st.lists(st.integers(1, 9), max_size=60))
def test_reasoning_and_tool_calls_work_together(sizes: list[int]) -> None:
    # Inside the reasoning nothing is looked for, so what is quoted there is no call.
    text = '<think>\nI call <tool_call>{"name": "no"}</tool_call>.\n</think>\n\nNow:\n'
    text += '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    assert read(text, sizes, inner=ToolReader(HERMES)) == {
        "reasoning": 'I call <tool_call>{"name": "no"}</tool_call>.',
        "content": "Now:",
        "call0": "f",
        "arguments0": '{"a": 1}',
    }


@given(PARTS, st.lists(st.integers(1, 5), max_size=30), st.sampled_from(["</", "think>", "a\n", "</think>", "a </"]))
def test_a_stop_string_that_looks_like_the_end_mark_splits_no_mark(text: str, sizes: list[int], stop: str) -> None:
    def through(sizes: list[int]) -> dict[str, str]:
        stops, reader = StopMatcher([stop]), ReasoningReader(ContentReader(), begun=True)
        pieces, at = [], 0
        for size in [*sizes, len(text)]:
            pieces.extend(reader.feed(stops.push(text[at : at + size])))
            at += size
        if stops.matched is None:
            pieces.extend(reader.feed(stops.finish()))
        return collected([*pieces, *reader.end()])

    assert through(sizes) == through([])
