"""Stop strings: never shown, found wherever they are cut, and nothing held back without need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from camshaft.tokenizer import StopMatcher


def run(stops: list[str], pieces: list[str], *, include: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, include_stop=include)
    shown = [matcher.push(piece) for piece in pieces]
    if matcher.matched is None:
        shown.append(matcher.finish())
    return "".join(shown), matcher.matched


def test_a_stop_string_split_over_tokens_never_leaks() -> None:
    matcher = StopMatcher(["STOP"])
    assert [matcher.push(p) for p in ("a S", "T", "O", "P b", "c")] == ["a ", "", "", "", ""]
    assert (matcher.matched, matcher.finish()) == ("STOP", "")


def test_what_did_not_become_a_stop_comes_out_as_soon_as_that_is_clear() -> None:
    matcher = StopMatcher(["STOP", "halt"])
    assert [matcher.push(p) for p in ("ST", "X", "h", "al", "o", "S")] == ["", "STX", "", "", "halo", ""]
    assert matcher.finish() == "S"


def test_the_stop_that_is_complete_first_wins_and_of_two_the_longer() -> None:
    assert run(["abc", "b"], ["abc"]) == ("a", "b")
    assert run(["bc", "abc"], ["xabc"]) == ("x", "abc")
    assert run(["aab"], ["aaab"]) == ("a", "aab")


def test_the_stop_is_shown_when_asked_for() -> None:
    assert run(["END"], ["one EN", "D two"], include=True) == ("one END", "END")


def test_empty_stops_and_no_stops_change_nothing() -> None:
    assert run([""], ["abc"]) == ("abc", None)
    assert run([], ["abc"]) == ("abc", None)


WORDS = st.text(alphabet="ab", min_size=1, max_size=4)


@given(st.lists(WORDS, max_size=4), st.text(alphabet="abc", max_size=30), st.lists(st.integers(1, 4), max_size=30), st.booleans())
def test_the_result_is_the_same_streamed_or_whole(stops: list[str], text: str, sizes: list[int], include: bool) -> None:
    pieces, at = [], 0
    for size in [*sizes, len(text)]:
        pieces.append(text[at : at + size])
        at += size
    ends = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    end, _, stop = min(ends, default=(len(text), 0, ""))
    expected = (text[: end if include else end - len(stop)], stop or None)
    assert run(stops, pieces, include=include) == run(stops, [text], include=include) == expected


@given(st.lists(WORDS, min_size=1, max_size=4), st.text(alphabet="abc", max_size=30))
def test_only_what_could_still_become_a_stop_is_held_back(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    shown = ""
    for i, char in enumerate(text):
        shown += matcher.push(char)
        if matcher.matched is not None:
            break
        seen = text[: i + 1]
        longest = max((n for n in range(len(seen) + 1) for s in stops if n < len(s) and s.startswith(seen[len(seen) - n :])), default=0)
        assert shown == seen[: len(seen) - longest]


def test_long_stops_cost_no_more_a_character() -> None:
    stops = ["a" * 2000 + str(i) for i in range(16)]
    assert run(stops, ["a"] * 5000)[0] == "a" * 5000
