"""Estimates of tokens: learned, bounded, unmoved by one odd report."""

from __future__ import annotations

from camshaft.cluster.estimate import LEAST, MOST, TokenEstimate
from camshaft.types import ChatPrompt, TextPrompt, TokenPrompt


def test_ids_are_exact_and_text_begins_with_a_belief() -> None:
    estimate = TokenEstimate()
    assert estimate.tokens_of(TokenPrompt((1, 2, 3))) == 3
    assert estimate.tokens_of(TextPrompt("x" * 400)) == 100
    assert estimate.tokens_of(TextPrompt("")) == 1


def test_it_learns_what_the_server_counts() -> None:
    estimate = TokenEstimate()
    prompt = TextPrompt("漢" * 1000)
    for _ in range(200):
        estimate.learn(1000, 900)
    assert 850 <= estimate.tokens_of(prompt) <= 950
    for _ in range(4000):
        estimate.learn(1000, 250)
    assert 230 <= estimate.tokens_of(prompt) <= 300


def test_one_odd_report_does_not_turn_it_over() -> None:
    estimate = TokenEstimate()
    estimate.learn(1, 10**12)
    assert LEAST <= estimate.chars_per_token <= MOST
    estimate.learn(10**6, 1)
    assert LEAST <= estimate.chars_per_token <= MOST


def test_a_conversation_counts_with_its_tools() -> None:
    estimate = TokenEstimate()
    said = ChatPrompt(({"role": "user", "content": "x" * 400},))
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"description": "y" * 400}}, "n": [1, None]}}}
    assert 100 < estimate.tokens_of(said) < 120
    assert estimate.tokens_of(ChatPrompt(said.messages, (tool,))) > 200


def test_tokens_of_an_event() -> None:
    estimate = TokenEstimate()
    assert estimate.tokens_per_event == 1
    for _ in range(100):
        estimate.learn_events(10, 80)
    assert 6 < estimate.tokens_per_event <= 8
