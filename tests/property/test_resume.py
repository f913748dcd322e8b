"""A stream that is cut anywhere and goes on elsewhere is the stream that nobody cut: text, ids, log-probabilities, ending and counts.

Text that comes twice, or never, or whose tokens are counted twice, when a replica dies (gateway failures, row 14); JSON that begins anew
within JSON (gateway failures, row 15).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from camshaft.config import EngineConfig
from camshaft.engine.job import Job
from camshaft.engine.load import load
from camshaft.engine.loop import EngineLoop
from camshaft.engine.output import FlushRules, Output
from camshaft.errors import BadRequest
from camshaft.runners.fake import FakeOptions
from camshaft.sample.grammar import GrammarCompiler
from camshaft.sched.sequence import Sequence as Seq
from camshaft.types import Delta, Event, Failed, Finished, Grammar, Request, Resume, SamplingParams, TokenPrompt
from engine_rig import ROOMY, ListSink, Rig, sink_of
from gguf_writer import Tiny, tiny_model

END = 256
EACH_TOKEN = {"flush_tokens": 0, "flush_ms": 0.0}


class Whole(NamedTuple):
    """An answer in steps: what a client has after each token."""

    parts: tuple[Delta, ...]  # one for each token, then what only the end brought out
    end: Finished

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(id for part in self.parts for id in part.ids)


def whole(events: Sequence[Event]) -> Whole:
    end = events[-1]
    assert isinstance(end, Finished), end
    return Whole(tuple(e for e in events if isinstance(e, Delta)), end)


def cuts(undisturbed: Whole) -> Iterator[tuple[int, int]]:
    """Every number of tokens that a client may have, with every number of characters that it may have of them.

    Events come whole, so more characters than a token's own are never missing in practice; here any may be.
    """
    for k in range(1, len(undisturbed.ids) + 1):
        n_text = sum(len(part.text) for part in undisturbed.parts[:k])
        # The last token and what the end brings out arrive together.
        most = len(undisturbed.text) if k == len(undisturbed.ids) else n_text
        yield from ((k, n) for n in range(most + 1))


def check(undisturbed: Whole, k: int, n_chars: int, events: Sequence[Event]) -> None:
    rest = whole(events)
    at = f"cut after {k} tokens and {n_chars} characters"
    assert undisturbed.text[:n_chars] + rest.text == undisturbed.text, at
    assert undisturbed.ids[:k] + rest.ids == undisturbed.ids, at
    logprobs = [p for part in undisturbed.parts for p in part.logprobs]
    assert [*logprobs[:k], *(p for part in rest.parts for p in part.logprobs)] == logprobs, at
    assert (rest.end.reason, rest.end.matched) == (undisturbed.end.reason, undisturbed.end.matched), at
    assert (rest.end.usage.n_prompt, rest.end.usage.n_output) == (undisturbed.end.usage.n_prompt, undisturbed.end.usage.n_output), at


# -------------------------------------------------------------------------------------------------------- a fake runner

PROMPT = (5, 6, 7)
CODE = Grammar("regex", "[a-f]{3}-[0-9]{4}")
CASES: dict[str, tuple[bytes | None, SamplingParams]] = {
    "to the end of sequence": ("Wörld 😀 ok".encode(), SamplingParams(max_tokens=40)),
    "to the limit": (None, SamplingParams(temperature=1.0, seed=3, max_tokens=9, ignore_eos=True, logprobs=2)),
    "a stop string over several tokens": (b"on STOq STOP x", SamplingParams(max_tokens=40, stop=("STOP",), logprobs=0)),
    "a stop string that is shown": (b"one STOP", SamplingParams(max_tokens=40, stop=("STOP",), include_stop=True)),
    "what only began like a stop string": (b"one STO", SamplingParams(max_tokens=7, stop=("STOP",))),
    "the same at the end of sequence": (b"one STO", SamplingParams(max_tokens=20, stop=("STOP",))),
    "stop strings within one another": (b"xxabcab", SamplingParams(max_tokens=40, stop=("abcd", "bcab", "ca"), min_tokens=3)),
    "before min_tokens a stop string is text": (b"abababab", SamplingParams(max_tokens=40, stop=("ab",), min_tokens=5)),
    "a stop token": (b"abc#def", SamplingParams(max_tokens=40, stop_token_ids=(ord("#"),), logprobs=1)),
    "a stop token that is shown": (b"abc#def", SamplingParams(max_tokens=40, stop_token_ids=(ord("#"),), include_stop=True)),
    "an end before min_tokens": (b"ab", SamplingParams(max_tokens=12, min_tokens=6, logprobs=0)),
    "half a character at the end": ("ab😀".encode(), SamplingParams(max_tokens=5)),
    "a grammar that is complete": (None, SamplingParams(seed=4, max_tokens=40, grammar=CODE, logprobs=1)),
    "a grammar and a limit": (None, SamplingParams(seed=4, max_tokens=5, grammar=CODE)),
    "a grammar and a stop string": (
        None,
        SamplingParams(seed=4, max_tokens=40, stop=("-",), grammar=CODE),
    ),
    "prompt log-probabilities": (b"abc", SamplingParams(max_tokens=10, prompt_logprobs=1)),
}


def rig(reply: bytes | None, **config: object) -> Rig:
    return Rig(ROOMY, FakeOptions(reply=lambda prompt: reply, eos_id=END), **EACH_TOKEN | config)


def events_of(reply: bytes | None, sampling: SamplingParams, choice: int, resume: Resume | None, **config: object) -> list[Event]:
    made = rig(reply, **config)
    job = made.submit(PROMPT, sampling=sampling, choice=choice, resume=resume)
    made.run()
    assert made.runner._slots == {}
    return sink_of(job).events


@pytest.mark.parametrize("case", CASES)
def test_every_cut_of_every_kind_of_answer(case: str) -> None:
    reply, sampling = CASES[case]
    for choice in (0, 1):
        undisturbed = whole(events_of(reply, sampling, choice, None))
        for k, n_chars in cuts(undisturbed):
            resumed = events_of(reply, sampling, choice, Resume(undisturbed.ids[:k], n_chars), prefix_caching=k % 2 == 0)
            check(undisturbed, k, n_chars, resumed)


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_every_cut_of_made_up_answers(data: st.DataObject) -> None:
    reply = data.draw(st.text("abé😀-", min_size=1, max_size=14)).encode()
    stops = tuple(data.draw(st.lists(st.text("abé-", min_size=1, max_size=4), max_size=3)))
    n, least = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 6))
    sampling = SamplingParams(max_tokens=n, min_tokens=min(n, least), stop=stops, include_stop=data.draw(st.booleans()), logprobs=0)
    undisturbed = whole(events_of(reply, sampling, 0, None))
    for k, n_chars in cuts(undisturbed):
        check(undisturbed, k, n_chars, events_of(reply, sampling, 0, Resume(undisturbed.ids[:k], n_chars)))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_stream_that_moves_again_and_again(data: st.DataObject) -> None:
    """The client's text in micro-batches, as it comes; each replica dies wherever it likes."""
    reply = data.draw(st.text("abé. ", min_size=1, max_size=20)).encode()
    sampling = SamplingParams(max_tokens=24, stop=("b.a",), logprobs=0)
    wanted = whole(events_of(reply, sampling, 0, None))
    ids, text, end = (), "", None
    while end is None:
        resume = Resume(ids, len(text)) if ids else None
        came = events_of(reply, sampling, 0, resume, flush_tokens=3, flush_ms=1000.0, flush_breaks=True)
        n_seen = len(came) - data.draw(st.integers(0, len(came)))  # the simplest: nothing is lost
        for event in came[:n_seen]:
            if isinstance(event, Delta):
                ids, text = ids + event.ids, text + event.text
            elif isinstance(event, Finished):
                end = event
    assert (text, ids) == (wanted.text, wanted.ids)
    assert (end.reason, end.matched, end.usage.n_output) == (wanted.end.reason, wanted.end.matched, wanted.end.usage.n_output)


@pytest.mark.parametrize(
    ("resume", "sampling", "words"),
    [
        (Resume((97, END, 98), 0), SamplingParams(max_tokens=9), "after its end"),
        (Resume((97, 98), 3), SamplingParams(max_tokens=9), "more characters"),
        (Resume((), 1), SamplingParams(max_tokens=9), "more characters"),
        (Resume(tuple(b"x-y"), 0), SamplingParams(max_tokens=9, grammar=Grammar("regex", "[0-9]+")), "grammar"),
        (Resume(tuple(b"123"), 0), SamplingParams(max_tokens=9, grammar=Grammar("regex", "[0-9]{2}")), "grammar"),
        (Resume(tuple(b"1234"), 0), SamplingParams(max_tokens=3), "max_tokens"),
    ],
)
def test_what_cannot_have_come_from_the_request_is_refused(resume: Resume, sampling: SamplingParams, words: str) -> None:
    made = rig(b"abc")
    terminal = ""
    try:
        job = made.submit(PROMPT, sampling=sampling, resume=resume)
        made.run()
        last = sink_of(job).events[-1]
        assert isinstance(last, Failed), last
        terminal = last.error.message
    except BadRequest as error:
        terminal = error.message
    assert words in terminal


def test_a_stream_that_was_over_computes_nothing_more() -> None:
    undisturbed = whole(events_of(b"abc", SamplingParams(max_tokens=9), 0, None))
    made = rig(b"abc")
    job = made.submit(PROMPT, sampling=SamplingParams(max_tokens=9), resume=Resume(undisturbed.ids, 3))
    made.run()
    assert made.runner.n_steps == 0
    assert sink_of(job).events == [Finished("stop", msgspec.structs.replace(undisturbed.end.usage, n_cached=0))]


# -------------------------------------------------------------------------------------------------------- a real model

NUMBER = Grammar("regex", "[a-z]{4,9}=[0-9]{3};")
REAL: dict[str, SamplingParams] = {
    "sampled, penalised, with log-probabilities": SamplingParams(
        temperature=0.9, top_p=0.95, seed=11, max_tokens=24, ignore_eos=True, logprobs=3,
        repetition_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.2,
    ),
    "greedy with a minimum and a bias": SamplingParams(temperature=0, max_tokens=16, min_tokens=12, logit_bias=((7, 1.5),), logprobs=0),
    "bound to a grammar": SamplingParams(temperature=1.0, seed=5, max_tokens=24, grammar=NUMBER, logprobs=0),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("resume") / "tiny.gguf", Tiny(family="gemma3", n_layers=6, weights="Q4_1", window=24))


class RealRig:
    """An engine loop over a real model, with no thread."""

    def __init__(self, model: Path, **config: object) -> None:
        loaded = load(str(model), EngineConfig(kv_memory="2M", threads=1, **EACH_TOKEN | config))  # type: ignore[arg-type]
        self.runner, self.codec, self.config = loaded.parts.runner, loaded.speech.codec, loaded.parts.config
        self.loop = EngineLoop(loaded.parts)
        self.grammars = GrammarCompiler(self.codec, self.runner.capacity().vocab_size)

    def events_of(self, sampling: SamplingParams, asked: Sequence[tuple[int, Resume | None]]) -> list[list[Event]]:
        """The answers to (choice, resume), all in one batch."""
        prompt = tuple(self.codec.encode("the quick brown fox"))
        jobs = []
        for key, (choice, resume) in enumerate(asked):
            request = Request(id=f"r{key}", prompt=TokenPrompt(prompt), sampling=sampling, choice=choice, resume=resume)
            seq = Seq(key + 1, request, prompt, self.loop.clock.now())
            matcher = self.grammars.matcher(sampling.grammar) if sampling.grammar else None
            jobs.append(Job(seq, Output(request, prompt, self.codec, FlushRules.of(self.config)), ListSink(), matcher))
            self.loop.submit(jobs[-1])
        while self.loop.jobs:
            self.loop.turn()
        return [sink_of(job).events for job in jobs]


@pytest.mark.parametrize("case", REAL)
def test_every_cut_of_a_real_models_answers(model: Path, case: str) -> None:
    one, other = RealRig(model), RealRig(model, block_size=16, max_num_batched_tokens=16, prefix_caching=False)
    assert one.runner.numerics_id == other.runner.numerics_id
    for choice in (0, 1):
        (events,) = one.events_of(REAL[case], [(choice, None)])
        undisturbed = whole(events)
        assert len(undisturbed.ids) >= 4
        chosen = list(cuts(undisturbed))
        rests = other.events_of(REAL[case], [(choice, Resume(undisturbed.ids[:k], n)) for k, n in chosen])
        for (k, n), rest in zip(chosen, rests, strict=True):
            check(undisturbed, k, n, rest)
