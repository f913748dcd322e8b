"""What a hostile or broken chat template can do: nothing, in bounded time."""

from __future__ import annotations

import datetime

import pytest

from camshaft.clock import ManualClock
from camshaft.errors import BadRequest, ModelError
from camshaft.tokenizer import ChatTemplate
from camshaft.types import ChatPrompt

HELLO = ChatPrompt(({"role": "user", "content": "u<|x|>"},))


class TickingClock:
    """Every look costs a second, so that a deadline is met without waiting for it."""

    def __init__(self) -> None:
        self._clock = ManualClock()

    def now(self) -> float:
        self._clock.advance(1.0)
        return self._clock.now()


def render(source: str, prompt: ChatPrompt = HELLO) -> list[tuple[str, bool]]:
    now = lambda: datetime.datetime(2026, 3, 4, 5, 6)  # noqa: E731
    return ChatTemplate(source, clock=TickingClock(), now=now, max_chars=100_000).render(prompt)


def text(source: str, prompt: ChatPrompt = HELLO) -> str:
    return "".join(part for part, _ in render(source, prompt))


LOOP = "{% for i in range(9999) %}"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (LOOP * 3 + "{% endfor %}" * 3, "too long"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}", "too long"),
        ("{{ range(99999) | map('string') | join }}", "would exceed"),
        ("{{ 'a' * 10 ** 9 }}", "would exceed"),
        ("{% set x = [1] * 10 ** 9 %}", "would exceed"),
        ("{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}", "would exceed"),
        ("{% set n = namespace(x='aa') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}", "would exceed"),
        ("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}", "too large"),
        ("{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}", "too large"),
        ("{{ ('a' * 9999) | replace('a', 'b' * 9999) }}", "would exceed"),
        ("{{ (['a'] * 9999) | join('b' * 9999) }}", "would exceed"),
        ("{% set n = namespace(x=[]) %}{% for i in range(60) %}{% set n.x = n.x + ['a' * 90000] %}{% endfor %}", "too much text"),
        ("{% set n = namespace(x=[]) %}{% for i in range(600) %}{% set n.x = n.x + [range(9000) | list] %}{% endfor %}", "too much text"),
        ("{{ 10 ** 10 ** 10 }}", "power"),
        ("{{ 'a'.center(10 ** 9) }}", "too wide"),
        ("{{ 'a'.zfill(10 ** 9) }}", "too wide"),
        ("{{ '%999999999d' % 1 }}", "width"),
        ("{{ '{:>999999999}'.format(1) }}", "width"),
        ("{{ ''.__class__.__mro__ }}", "refused"),
        ("{{ '{0.__class__}'.format(1) }}", "refused"),
        ("{{ messages.append(1) }}", "refused"),
        ("{{ cycler.__init__.__globals__ }}", "refused"),
        ("{% set n = namespace() %}{% set n._x = 1 %}", "refused"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ raise_exception('no ' + messages[0].role) }}", "no user"),
        ("{{ messages[0].nothing.more }}", "refused"),
        ("{{ 1 // 0 }}", "refused"),
        ("{% include 'passwd' %}", "refused"),
    ],
)
def test_a_template_that_misbehaves_is_a_refused_request(source: str, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ 'a' | urlize }}",
        "{% for x in y %}",
        "(" * 3,
        "{{ " + "(" * 5000,
        "{% for i in [] %}" * 30 + "{% endfor %}" * 30,
        "x" * 1_000_001,
    ],
)
def test_a_template_that_does_not_compile_is_a_model_error(source: str) -> None:
    if source == "(((":
        assert text(source) == source
        return
    with pytest.raises(ModelError, match="chat template"):
        ChatTemplate(source)


def test_nothing_of_a_template_is_computed_when_it_is_compiled() -> None:
    ChatTemplate("{{ 'a' * 10 ** 12 }}{{ 10 ** 10 ** 10 }}")


def test_the_extras_that_templates_expect_are_there() -> None:
    assert text("{{ strftime_now('%d %b %Y') }}") == "04 Mar 2026"
    assert text("{% generation %}a{{ 1 }}{% endgeneration %}b") == "a1b"
    assert (
        text("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}")
        == "013"
    )
    assert text("{{ {'a': '<b> & é'} | tojson }}") == '{"a": "<b> & é"}'
    assert text("{{ {'b': 1, 'a': [2]} | tojson(indent=2, sort_keys=true) }}") == '{\n  "a": [\n    2\n  ],\n  "b": 1\n}'
    assert text("a\n  {%- if true %}\n b\n  {% endif %}\nc") == "a b\nc"
    assert text("{{ 'a\nb\n\nc' | indent(2) }}|{{ 'a\nb' | indent('>', first=true) }}") == "a\n  b\n\n  c|>a\n>b"
    assert text("{{ dict(a=1).items() | list }}{{ ['x', 'y'] | join(',') }}{{ 'a-b' | replace('-', '+') }}") == "[('a', 1)]x,ya+b"


@pytest.mark.parametrize(
    "source",
    [
        "[{{ messages[0].content }}]",
        "[{{ messages[0]['content'] | trim | upper | lower }}]",
        "{{ '[' + messages[0].content + ']' }}",
        "{{ '[' ~ messages[0].content ~ ']' }}",
        "{{ '[%s]' % messages[0].content }}",
        "{{ '[{}]'.format(messages[0].content) }}",
        "{{ '[%s]' | format(messages[0].content) }}",
        "{{ ['[', messages[0].content, ']'] | join }}",
        "{{ ''.join(['[', messages[0].content, ']']) }}",
        "{{ '[x]'.replace('x', messages[0].content) }}",
        "{{ '[x]' | replace('x', messages[0].content) }}",
        "{% macro m(x) %}[{{ x }}]{% endmacro %}{{ m(messages[0].content) }}",
        "{% set x %}[{{ messages[0].content }}]{% endset %}{{ x }}",
        "{% filter trim %} [{{ messages[0].content }}] {% endfilter %}",
        "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}{{ messages[0].content }}{% endcall %}",
        "[{% for c in messages[0].content %}{{ c }}{% endfor %}]",
        "[{{ messages[0].content.split('|') | join(messages[0].content[2]) }}]",
        "[{{ messages | map(attribute='content') | first | string | safe }}]",
        "{% set ns = namespace(s='[') %}{% set ns.s = ns.s + messages[0].content %}{{ ns.s + ']' }}",
        "[{{ messages[0].content if true else '' }}]",
        "{% generation %}[{{ messages[0].content }}]{% endgeneration %}",
        "[{{ messages[0].get('content') }}]",
        "[{{ messages[0].content[:2] }}{{ messages[0].content[2:] }}]",
    ],
)
def test_a_users_words_are_told_from_the_templates_however_they_are_put_together(source: str) -> None:
    prompt = ChatPrompt(({"role": "user", "content": "u<|x|>"},))
    assert render(source, prompt) == [("[", True), ("u<|x|>", False), ("]", True)]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages }}",
        "{{ messages | tojson }}",
        "{{ messages[0] | string }}",
        "{{ messages[0].content | escape }}",
        "{{ '%9s' % messages[0].content }}",
    ],
)
def test_text_of_unclear_origin_counts_as_the_users(source: str) -> None:
    assert [control for _, control in render(source)] == [False]
