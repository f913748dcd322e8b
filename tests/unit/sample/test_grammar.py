"""Grammars: compiled within bounds, followed token by token, and refused in one line."""

from __future__ import annotations

import json

import pytest

from byte_codec import ByteCodec
from camshaft.errors import BadGrammar, EngineFault
from camshaft.sample.grammar import GrammarCompiler, Matcher
from camshaft.types import Grammar

N_VOCAB = 512


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(ByteCodec(), N_VOCAB)


def allowed(matcher: Matcher) -> set[int]:
    bits = int.from_bytes(matcher.mask, "little")
    return {i for i in range(N_VOCAB) if bits >> i & 1}


def test_a_mask_has_a_bit_for_each_row_of_the_head_and_padding_is_never_allowed(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(Grammar("regex", "."))
    assert len(matcher.mask) == N_VOCAB // 8
    assert allowed(matcher)
    assert max(allowed(matcher)) < 256


def test_a_grammar_is_followed_to_its_end(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(Grammar("regex", "[0-9]{2}x"))
    assert allowed(matcher) == set(b"0123456789")
    assert not matcher.push(ord("4"))
    assert not matcher.push(ord("2"))
    assert allowed(matcher) == {ord("x")}
    assert matcher.push(ord("x")), "nothing but the end may follow"


def test_the_end_is_allowed_where_the_grammar_may_end(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(Grammar("lark", 'start: "a" "b"+'))
    matcher.push(ord("a"))
    assert 256 not in allowed(matcher)
    matcher.push(ord("b"))
    assert allowed(matcher) == {ord("b"), 256}


def test_a_token_that_was_not_allowed_is_our_fault_and_said(compiler: GrammarCompiler) -> None:
    with pytest.raises(EngineFault, match="not allow"):
        compiler.matcher(Grammar("regex", "[0-9]+")).push(ord("x"))


def test_matchers_of_one_grammar_are_independent(compiler: GrammarCompiler) -> None:
    one, two = (compiler.matcher(Grammar("regex", "ab")) for _ in range(2))
    one.push(ord("a"))
    assert allowed(one) == {ord("b")}
    assert allowed(two) == {ord("a")}


def test_json_may_not_run_blanks_for_ever(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(Grammar("json_object"))
    matcher.push(ord("{"))
    n = 0
    while ord(" ") in allowed(matcher) and n < 100:
        matcher.push(ord(" "))
        n += 1
    assert n <= 8


SCHEMA = json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False})


def test_a_schema_is_followed(compiler: GrammarCompiler) -> None:
    matcher = compiler.matcher(Grammar("json_schema", SCHEMA))
    for byte in b'{"a":12':
        assert byte in allowed(matcher)
        matcher.push(byte)
    assert ord("}") in allowed(matcher)
    assert ord("x") not in allowed(matcher)


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("regex", "(["),
        Grammar("regex", "a{99999999}"),
        Grammar("regex", "(a{1000}){1000}"),
        Grammar("json_schema", "{bad"),
        Grammar("json_schema", '{"type": "nope"}'),
        Grammar("json_schema", '{"$ref": "#/definitions/missing"}'),
        Grammar("json_schema", '{"a":' * 10_000 + "1" + "}" * 10_000),
        Grammar("lark", "start: foo"),
        Grammar("lark", ""),
        Grammar("lark", "x" * 300_000),
    ],
    ids=lambda g: f"{g.kind} {g.source[:24]}",
)
def test_a_bad_grammar_is_refused_in_one_line(compiler: GrammarCompiler, grammar: Grammar) -> None:
    with pytest.raises(BadGrammar) as caught:
        compiler.matcher(grammar)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert caught.value.status == 400
