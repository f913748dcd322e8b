"""From ids to deltas: stops, half characters, log-probabilities, and when to send."""

from __future__ import annotations

import pytest

from byte_codec import ByteCodec
from camshaft.config import EngineConfig
from camshaft.engine.output import Ending, FlushRules, Output
from camshaft.types import RawLogprob, Request, Resume, SamplingParams, TokenPrompt

END = 256


def output(rules: FlushRules | None = None, resume: Resume | None = None, **params: object) -> Output:
    sampling = SamplingParams(**params)  # type: ignore[arg-type]
    request = Request(id="r", prompt=TokenPrompt((1,)), sampling=sampling, resume=resume)
    return Output(request, [1], ByteCodec(), rules or FlushRules(1, 0.0, False))


def feed(out: Output, data: bytes) -> tuple[str, Ending | None]:
    """Text and ending, byte by byte, each flushed."""
    text = ""
    for byte in data:
        ending = out.push(byte, None, 0.0)
        if ending is not None:
            delta = out.finish(ending)
            return text + (delta.text if delta else ""), ending
        delta = out.flush()
        text += delta.text if delta else ""
    return text, None


def test_a_stop_string_over_several_tokens_is_never_shown() -> None:
    text, ending = feed(output(stop=("STOP",)), b"go on STOq STOP and more")
    assert text == "go on STOq "
    assert ending == Ending("stop", "STOP")


def test_the_stop_string_is_shown_where_that_is_asked_for() -> None:
    assert feed(output(stop=("STOP",), include_stop=True), b"go STOP")[0] == "go STOP"


def test_what_only_began_like_a_stop_string_comes_out_at_the_end() -> None:
    out = output(stop=("STOP",))
    assert feed(out, b"one STO")[0] == "one "
    delta = out.finish(Ending("length"))
    assert delta is not None
    assert delta.text == "STO"


def test_before_min_tokens_a_stop_string_is_text() -> None:
    text, ending = feed(output(stop=("ab",), min_tokens=4), b"ababab")
    assert text == "abab"
    assert ending == Ending("stop", "ab")


def test_a_stop_string_that_begins_before_min_tokens_and_ends_after_it_ends_the_answer() -> None:
    text, ending = feed(output(stop=("STOP",), min_tokens=5), b"go STOP on")
    assert (text, ending) == ("go ", Ending("stop", "STOP"))


def test_a_stop_string_within_min_tokens_is_text_and_the_next_one_ends_it() -> None:
    assert feed(output(stop=("aba",), min_tokens=3), b"ababa") == ("ab", Ending("stop", "aba"))


def test_the_token_that_ends_it_is_marked_among_the_logprobs() -> None:
    out = output(logprobs=0)
    for id in (ord("a"), END):
        out.push(id, RawLogprob(id, -1.0), 0.0)
    delta = out.finish(Ending("stop"))
    assert delta is not None
    assert [(p.id, p.ends) for p in delta.logprobs] == [(ord("a"), False), (END, True)]


def test_characters_are_whole_and_ids_come_with_their_step() -> None:
    out = output()
    deltas = []
    for byte in "a😀é".encode():
        out.push(byte, None, 0.0)
        deltas.append(out.flush())
    assert all(d is not None and len(d.ids) == 1 for d in deltas)
    assert [d.text for d in deltas if d] == ["a", "", "", "", "😀", "", "é"]


def test_half_a_character_at_the_end_is_not_shown() -> None:
    out = output()
    text, _ = feed(out, "ok 😀".encode()[:-1])
    delta = out.finish(Ending("length"))
    assert text + (delta.text if delta else "") == "ok "


def test_the_end_token_ends_it_without_text() -> None:
    out = output()
    feed(out, b"hi")
    assert out.push(END, None, 0.0) == Ending("stop")
    delta = out.finish(Ending("stop"))
    assert delta is not None
    assert (delta.text, delta.ids) == ("", (END,))


def test_ignore_eos_goes_on_and_a_stop_id_names_itself() -> None:
    out = output(ignore_eos=True, stop_token_ids=(7,))
    assert out.push(END, None, 0.0) is None
    assert out.push(7, None, 0.0) == Ending("stop", 7)


def test_logprobs_carry_bytes_and_stay_aligned_with_ids_whatever_is_held_back() -> None:
    out = output(stop=("zzz",), logprobs=1)
    for byte in "zé".encode():
        out.push(byte, RawLogprob(byte, -1.5, ((byte, -1.5), (300, -2.0))), 0.0)
    delta = out.flush()
    assert delta is not None
    assert [p.id for p in delta.logprobs] == list(delta.ids)
    assert [p.token for p in delta.logprobs] == [b"z", b"\xc3", b"\xa9"]
    assert [t.token for t in delta.logprobs[0].top] == [b"z", b""]


def test_a_resumed_stream_goes_on_after_the_characters_that_were_sent() -> None:
    out = output(resume=Resume(tuple("hello wörld".encode()), 7))
    out.push(ord("!"), None, 0.0)
    delta = out.flush()
    assert delta is not None
    assert delta.text == "örld!"
    assert delta.ids == (ord("!"),), "ids that were sent elsewhere are not repeated"
    assert out.n == 13


def test_a_resumed_stream_finds_a_stop_string_that_began_before() -> None:
    out = output(resume=Resume(tuple(b"abcST"), 3), stop=("STOP",))
    assert feed(out, b"OP")[1] == Ending("stop", "STOP")


# -------------------------------------------------------------------------------------------------------- when to send

MICRO = FlushRules(3, 0.030, True)


def sends(out: Output, text: str, gap_s: float = 0.001) -> list[str]:
    parts, now = [], 0.0
    for byte in text.encode():
        out.push(byte, None, now)
        now += gap_s
        if out.is_due(now):
            delta = out.flush()
            parts.append(delta.text if delta else "")
    return parts


def test_the_first_token_goes_at_once_and_then_every_third() -> None:
    assert sends(output(MICRO), "abcdefgh") == ["a", "bcd", "efg"]


@pytest.mark.parametrize("stop", [",", ".", "!", "\n", "。", "、", "？"])
def test_a_natural_break_is_sent_at_once(stop: str) -> None:
    assert sends(output(MICRO), f"ab{stop}")[-1].endswith(stop)


def test_what_waited_thirty_milliseconds_goes() -> None:
    assert sends(output(MICRO), "abcd", gap_s=0.016) == ["a", "bc"]


@pytest.mark.parametrize("setting", [{"flush_tokens": 0}, {"flush_ms": 0}])
def test_zero_turns_waiting_off(setting: dict[str, float]) -> None:
    rules = FlushRules.of(EngineConfig(**setting))  # type: ignore[arg-type]
    assert sends(output(rules), "abcd") == ["a", "b", "c", "d"]


def test_nothing_is_due_where_nothing_is_held() -> None:
    out = output(MICRO)
    assert not out.is_due(1e9)
    assert out.flush() is None
