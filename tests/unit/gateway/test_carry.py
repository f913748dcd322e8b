"""What a client has stays with it when its stream changes the replica."""

from __future__ import annotations

from camshaft.gateway.carry import Carry
from camshaft.types import (
    CallDelta,
    Delta,
    ErrorInfo,
    Event,
    Failed,
    Finished,
    Request,
    Resume,
    Route,
    SamplingParams,
    Scored,
    Started,
    TextPrompt,
    TokenLogprob,
    Usage,
)

REQUEST = Request(id="r", prompt=TextPrompt("hi"), sampling=SamplingParams(seed=1, prompt_logprobs=0))
FIRST, SECOND = Route(replica="a"), Route(replica="b", n_tries=2)


def seen(carry: Carry, event: Event, route: Route = FIRST) -> Event | None:
    return carry.see(event, route, 0.5)


def test_nothing_begun_is_asked_anew() -> None:
    carry = Carry(REQUEST)
    assert seen(carry, Started(3, 1, 0.25)) == Started(3, 1, 0.75, FIRST)
    assert not carry.begun
    assert carry.ask() is REQUEST


def test_ids_and_characters_go_along() -> None:
    carry = Carry(REQUEST)
    seen(carry, Started(3, 1, 0.0))
    seen(carry, Delta("ab", (5, 6)))
    seen(carry, Delta("", (7,)))
    assert carry.begun
    assert carry.movable
    assert carry.ask().resume == Resume((5, 6, 7), 2)


def test_a_second_start_is_not_told_and_the_prompt_counts_once() -> None:
    carry = Carry(REQUEST)
    seen(carry, Started(3, 1, 0.0))
    seen(carry, Delta("ab", (5, 6)))
    assert seen(carry, Started(3, 3, 0.0), SECOND) is None
    assert seen(carry, Finished("stop", Usage(3, 3, 4)), SECOND) == Finished("stop", Usage(3, 1, 4))


def test_the_prompts_own_scores_come_once_and_are_not_asked_for_again() -> None:
    carry = Carry(REQUEST)
    scored = Scored((TokenLogprob(1, b"h", None),))
    assert seen(carry, scored) == scored
    assert seen(carry, scored, SECOND) is None
    assert carry.ask().sampling.prompt_logprobs is None
    assert carry.ask().resume is None


def test_what_has_no_ids_cannot_move() -> None:
    for delta in (Delta("hello", (), n_tokens=1), Delta("", (), calls=(CallDelta(0, "f"),)), Delta("", (), reasoning="hm")):
        carry = Carry(REQUEST)
        seen(carry, delta)
        assert carry.begun
        assert not carry.movable


def test_a_failure_is_passed_on() -> None:
    failed = Failed(ErrorInfo("bad", "no", 400))
    assert seen(Carry(REQUEST), failed) is failed


def test_a_server_that_cannot_tell_at_the_start_what_was_cached_is_believed_at_the_end() -> None:
    carry = Carry(Request(id="r", prompt=TextPrompt("x")))
    carry.see(Started(3, -1, 0.0), Route(), 0.0)
    end = Finished("stop", Usage(3, 2, 1))
    assert carry.see(end, Route(), 0.0) == end
