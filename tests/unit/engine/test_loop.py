"""The engine loop over a fake runner, step by step."""

from __future__ import annotations

import logging
import re
from itertools import pairwise

import pytest

from camshaft.engine.job import Job
from camshaft.runners.fake import FakeOptions
from camshaft.types import (
    Capacity,
    Delta,
    Event,
    Failed,
    Finished,
    Grammar,
    KVGroup,
    Resume,
    SamplingParams,
    Scored,
    Started,
    StepPlan,
)
from engine_rig import ROOMY, ListSink, Rig, alone, sink_of


def says(text: str, eos: bool = True) -> FakeOptions:
    """A model that answers with this text, whatever it is asked."""
    return FakeOptions(reply=lambda prompt: [*text.encode(), *([256] if eos else [])], eos_id=256)


class NotingSink(ListSink):
    """Puts down in `order` what is put into it, and when it is sent."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    def put(self, event: Event) -> None:
        super().put(event)
        self._order.append(type(event).__name__)

    def send(self) -> bool:
        self._order.append("send")
        return True


def kinds(job: Job) -> list[str]:
    return [type(e).__name__ for e in sink_of(job).events]


def test_events_come_in_order_and_end_once() -> None:
    rig = Rig(options=says("Hello there"))
    job = rig.submit(b"hi", sampling=SamplingParams(max_tokens=50))
    rig.run()
    assert kinds(job)[0] == "Started"
    assert set(kinds(job)[1:-1]) == {"Delta"}
    assert sink_of(job).text == "Hello there"
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert (terminal.reason, terminal.usage.n_prompt, terminal.usage.n_cached, terminal.usage.n_output) == ("stop", 2, 0, 12)


def test_batch_mates_with_other_stops_and_seeds_do_not_mix() -> None:
    rig = Rig(options=says("one two three"))
    jobs = [
        rig.submit(b"q", sampling=SamplingParams(max_tokens=50, stop=("two",))),
        rig.submit(b"q", sampling=SamplingParams(max_tokens=50, stop=("three",))),
        rig.submit(b"q", sampling=SamplingParams(max_tokens=50)),
        rig.submit(b"q", sampling=SamplingParams(max_tokens=3)),
    ]
    rig.run()
    assert [sink_of(job).text for job in jobs] == ["one ", "one two ", "one two three", "one"]


def test_a_seeded_request_is_the_same_beside_unseeded_mates() -> None:
    params = SamplingParams(temperature=1.0, seed=42, max_tokens=10, ignore_eos=True)
    wanted = alone([1, 2, 3], params).ids
    rig = Rig()
    jobs = [rig.submit([1, 2, 3], sampling=params)]
    jobs += [rig.submit([i, 3], sampling=SamplingParams(temperature=1.0, max_tokens=10, ignore_eos=True)) for i in range(5)]
    rig.run()
    assert sink_of(jobs[0]).ids == wanted


def test_canaries_in_one_request_never_reach_another() -> None:
    """Blocks are reused without being cleared; nothing of their former owner may be visible."""
    rig = Rig(Capacity(260, 64, 4, 14, (KVGroup(1),), 2, 16), prefix_caching=False)
    wanted = {i: alone([i] * 20, SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)).ids for i in range(6)}
    jobs = {i: rig.submit([i] * 20) for i in range(6)}
    rig.run()
    assert {i: sink_of(job).ids for i, job in jobs.items()} == wanted


def test_equal_request_ids_do_not_collide() -> None:
    rig = Rig()
    jobs = [rig.submit([i, 1, 2], id="mine") for i in range(2)]
    rig.loop.abort(jobs[0])
    rig.run()
    assert isinstance(sink_of(jobs[1]).terminal, Finished)


# ------------------------------------------------------------------------------------------------------------- failures


def test_a_failing_step_fails_its_rows_alone_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failing = {"now": False}

    def fail(plan: StepPlan) -> bool:
        return failing["now"]

    rig = Rig(options=FakeOptions(fail=fail), max_num_seqs=1)
    hit, waiting = rig.submit([1, 2, 3]), rig.submit([4, 5, 6])
    rig.loop.turn()
    failing["now"] = True
    with caplog.at_level(logging.ERROR):
        rig.loop.turn()
    failing["now"] = False
    rig.run()
    terminal = sink_of(hit).terminal
    assert isinstance(terminal, Failed)
    assert (terminal.error.code, terminal.error.status) == ("engine_fault", 500)
    assert isinstance(sink_of(waiting).terminal, Finished), "the engine lives on"
    assert "the last steps were" in caplog.text
    assert "step=2" in caplog.text
    assert "failed waiting=1" in caplog.text
    rig.check()
    assert rig.loop.kv.pool.n_in_use == 0


def test_logits_that_are_not_finite_fail_that_request_alone() -> None:
    rig = Rig(options=FakeOptions(reply=lambda prompt: [65, -1] if prompt[0] == 1 else [66, 67, 68, 256], eos_id=256))
    bad, good = rig.submit([1], sampling=SamplingParams(max_tokens=9)), rig.submit([2], sampling=SamplingParams(max_tokens=9))
    rig.run()
    terminal = sink_of(bad).terminal
    assert isinstance(terminal, Failed)
    assert terminal.error.code == "engine_fault"
    assert "not finite" in terminal.error.message
    assert sink_of(bad).text == "A", "what was said before stays said"
    assert sink_of(good).text == "BCD"


def test_a_reader_that_is_gone_is_an_abort() -> None:
    rig = Rig()
    job = rig.submit([1] * 8, sampling=SamplingParams(max_tokens=400, ignore_eos=True))
    rig.loop.turn()
    assert isinstance(job.sink, ListSink)
    job.sink.reader_left = True
    for _ in range(4):
        rig.loop.turn()
    assert not rig.loop.jobs
    assert rig.loop.kv.pool.n_in_use == 0


# --------------------------------------------------------------------------------------------------- masks and minimums


def test_min_tokens_keeps_the_end_away_and_then_lets_it_come() -> None:
    rig = Rig(options=says(""))
    job = rig.submit(b"q", sampling=SamplingParams(max_tokens=50, min_tokens=5))
    rig.run()
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert terminal.usage.n_output == 6
    assert 256 not in sink_of(job).ids[:5]


def test_min_tokens_keeps_stop_ids_away_too() -> None:
    rig = Rig(options=FakeOptions(reply=lambda prompt: [7] * 20, eos_id=256))
    job = rig.submit(b"q", sampling=SamplingParams(max_tokens=50, min_tokens=3, stop_token_ids=(7,)))
    rig.run()
    assert 7 not in sink_of(job).ids[:3]
    assert sink_of(job).terminal == Finished("stop", sink_of(job).terminal.usage, 7)  # type: ignore[union-attr]


def test_a_grammar_holds_every_token_and_ends_the_answer() -> None:
    rig = Rig()
    job = rig.submit(b"q", sampling=SamplingParams(max_tokens=50, grammar=Grammar("regex", "[a-f]{3}-[0-9]{2}")))
    rig.run()
    assert re.fullmatch("[a-f]{3}-[0-9]{2}", sink_of(job).text)
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert terminal.reason == "stop"


def test_a_grammar_cut_off_by_max_tokens_ends_with_length() -> None:
    rig = Rig()
    job = rig.submit(b"q", sampling=SamplingParams(max_tokens=2, grammar=Grammar("regex", "[a-f]{30}")))
    rig.run()
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert terminal.reason == "length"


def test_a_complete_grammar_ends_though_a_minimum_asks_for_more() -> None:
    rig = Rig()
    job = rig.submit(b"q", sampling=SamplingParams(max_tokens=50, min_tokens=20, grammar=Grammar("regex", "ab")))
    rig.run()
    assert sink_of(job).text == "ab"


def test_a_minimum_that_leaves_a_grammar_no_token_at_all_gives_way() -> None:
    rig = Rig()
    params = SamplingParams(max_tokens=50, min_tokens=20, stop_token_ids=(ord("c"),), grammar=Grammar("regex", "abcd"))
    job = rig.submit(b"q", sampling=params)
    rig.run()
    assert sink_of(job).ids == tuple(b"abc")
    assert isinstance(sink_of(job).terminal, Finished)


# ----------------------------------------------------------------------------------------------------- scores and resume


def scores_of(job: Job) -> Scored:
    (scored,) = [e for e in sink_of(job).events if isinstance(e, Scored)]
    return scored


@pytest.mark.parametrize("n_prompt", [1, 2, 15, 16, 17, 60])
def test_prompt_logprobs_are_complete_whatever_the_chunks_and_the_cache(n_prompt: int) -> None:
    prompt = [(i * 7) % 250 for i in range(n_prompt)]
    params = SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=1, ignore_eos=True)
    whole = Rig(ROOMY)
    warm = whole.submit(prompt)
    whole.run()
    job = whole.submit(prompt, sampling=params)
    whole.run()
    chunked = Rig(Capacity(260, 512, 4, 257, (KVGroup(1),), 8, 5))
    other = chunked.submit(prompt, sampling=params)
    chunked.run()
    assert len(scores_of(job).logprobs) == n_prompt
    assert [p.id for p in scores_of(job).logprobs] == prompt
    assert scores_of(job).logprobs[0].logprob is None
    assert all(p.logprob is not None for p in scores_of(job).logprobs[1:])
    assert scores_of(job) == scores_of(other)
    assert kinds(job).index("Scored") < kinds(job).index("Delta")
    assert sink_of(job).terminal.usage.n_cached == 0  # type: ignore[union-attr]
    assert warm


def test_scoring_without_generating() -> None:
    rig = Rig()
    job = rig.submit([1, 2, 3], sampling=SamplingParams(max_tokens=0, prompt_logprobs=0))
    rig.run()
    assert kinds(job) == ["Started", "Scored", "Finished"]
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert (terminal.reason, terminal.usage.n_output) == ("length", 0)


def test_a_resumed_stream_goes_on_as_if_it_had_never_moved() -> None:
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=20, ignore_eos=True)
    wanted = alone([5, 6, 7], params)
    rig = Rig()
    resume = Resume(wanted.ids[:8], 0)
    job = rig.submit([5, 6, 7], sampling=params, resume=resume)
    rig.run()
    assert sink_of(job).ids == wanted.ids[8:]
    assert sink_of(job).text == wanted.text
    assert sink_of(job).terminal.usage.n_output == 20  # type: ignore[union-attr]


def test_a_resumed_stream_that_carries_too_much_is_refused() -> None:
    rig = Rig()
    job = rig.submit([5], sampling=SamplingParams(max_tokens=3), resume=Resume((1, 2, 3, 4), 0))
    rig.run(3)
    assert isinstance(sink_of(job).terminal, Failed)


# -------------------------------------------------------------------------------------------------------------- streams


def arrivals(rig: Rig, job: Job) -> list[tuple[float, Event]]:
    seen: list[tuple[float, Event]] = []
    for _ in range(300):
        n = len(sink_of(job).events)
        rig.loop.turn()
        seen += [(rig.clock.now(), e) for e in sink_of(job).events[n:]]
        if not rig.loop.jobs:
            break
    return seen


def test_text_does_not_wait_through_a_step_that_is_expected_to_be_long() -> None:
    rig = Rig(options=None, flush_tokens=1000, flush_ms=50, flush_breaks=False)
    rig.runner._options = FakeOptions(step_s=0.01, token_s=0.001, sleep=rig.clock.advance, reply=lambda p: [97] * 200, eos_id=256)
    stream = rig.submit([1, 2], sampling=SamplingParams(max_tokens=100))
    for _ in range(8):
        rig.loop.turn()
    rig.submit([3] * 400)
    seen = arrivals(rig, stream)
    times = [at for at, e in seen if isinstance(e, Delta)]
    waits = [b - a for a, b in pairwise(times)]
    assert max(waits) <= 0.05 + 0.01 + 32 * 0.001 + 1e-6


def test_started_is_sent_before_the_step_that_it_announces() -> None:
    order: list[str] = []

    rig = Rig(options=FakeOptions(fail=lambda plan: order.append("step") is not None))
    job = rig.job([1, 2, 3])
    job.sink = NotingSink(order)
    rig.loop.submit(job)
    rig.loop.turn()
    assert order[:3] == ["Started", "send", "step"]


def test_the_engine_counts_what_it_does() -> None:
    rig = Rig(Capacity(260, 200, 4, 30, (KVGroup(1),), 3, 16))
    for i in range(6):
        rig.submit([*range(20), i], sampling=SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    rig.submit([1] * 500)
    rig.run()
    text = rig.loop.report.metrics.metrics.render().decode()
    value = {line.rsplit(" ", 1)[0].split("{")[0]: float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line[0] != "#"}
    assert value["camshaft_generation_tokens_total"] == 240
    assert value["camshaft_prefix_cache_hits_total"] >= 5 * 20
    assert value["camshaft_num_preemptions_total"] > 0
    assert value["camshaft_time_to_first_token_seconds_count"] == 6
    assert value["camshaft_admission_rejections_total"] == 1
    assert value["camshaft_num_requests_running"] == 0
    assert 'stage="detokenise"' in text


GAUGES = {"camshaft_num_requests_running", "camshaft_num_requests_waiting", "camshaft_kv_cache_usage_perc", "camshaft_kv_cache_waste_perc"}


def test_the_gauges_tell_when_the_last_client_left() -> None:
    rig = Rig()
    job = rig.submit([1, 2, 3], sampling=SamplingParams(temperature=0, max_tokens=300, ignore_eos=True))
    rig.loop.turn()
    rig.loop.turn()
    rig.loop.abort(job)
    assert not rig.loop.turn()
    lines = rig.loop.report.metrics.metrics.render().decode().splitlines()
    gauges = {name: value for line in lines for name, _, value in [line.partition("{")] if name in GAUGES}
    assert {value.rpartition(" ")[2] for value in gauges.values()} == {"0.0"}
    assert gauges.keys() == GAUGES


def test_what_a_step_brought_is_handed_over_before_the_next_step_or_sleep() -> None:
    order: list[str] = []

    rig = Rig(options=FakeOptions(fail=lambda plan: bool(order.append("step"))))
    job = rig.job([1], sampling=SamplingParams(temperature=0, max_tokens=2, ignore_eos=True))
    job.sink = NotingSink(order)
    rig.loop.submit(job)
    while rig.loop.turn():
        pass
    assert order == ["Started", "send", "step", "Delta", "send", "step", "Delta", "Finished", "send"]


def test_a_job_that_nobody_reads_ends_within_a_step_and_spares_its_mates() -> None:
    rig = Rig()
    job, mate = rig.submit([1, 2]), rig.submit([3, 4])
    rig.loop.turn()
    sink_of(job).reader_left = True
    rig.loop.turn()
    rig.loop.turn()
    assert list(rig.loop.jobs.values()) == [mate]
    rig.check()
    rig.run()
    assert isinstance(sink_of(mate).terminal, Finished)
    assert sink_of(mate).ids == alone([3, 4], mate.request.sampling).ids


def test_memory_of_steps_is_bounded() -> None:
    rig = Rig()
    rig.submit([1], sampling=SamplingParams(temperature=0, max_tokens=300, ignore_eos=True))
    rig.run()
    assert len(rig.loop.flights.lines()) == 64
    assert not rig.loop._held
    assert not rig.loop._touched
    started = [e for e in sink_of(rig.submit([1])).events if isinstance(e, Started)]
    assert not started
