"""The scheduler's promises, seen through an engine that is driven step by step."""

from __future__ import annotations

import pytest

from camshaft.engine.job import Job
from camshaft.errors import BadRequest, Overloaded, PromptTooLong, from_info
from camshaft.runners.fake import FakeOptions
from camshaft.types import Capacity, Failed, Finished, KVGroup, SamplingParams, Started
from engine_rig import ROOMY, Rig, sink_of

LONG = SamplingParams(temperature=0, max_tokens=400, ignore_eos=True)


def small(n_blocks: int, *, max_slots: int = 4, max_tokens: int = 16) -> Capacity:
    return Capacity(260, 400, 4, n_blocks, (KVGroup(1),), max_slots, max_tokens)


def error_of(job: Job) -> Exception:
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Failed), sink_of(job).events
    return from_info(terminal.error)


# ------------------------------------------------------------------------------------------------------------- admission


def test_a_prompt_longer_than_the_context_is_refused_with_numbers() -> None:
    rig = Rig(small(200))
    error = error_of(rig.submit([1] * 400))
    assert isinstance(error, PromptTooLong)
    assert "400 tokens and one to generate" in str(error)
    assert "context of 400" in str(error)


def test_a_prompt_that_fits_the_context_but_not_the_pool_is_refused_and_holds_up_nobody() -> None:
    rig = Rig(small(9))
    error = error_of(rig.submit([1] * 32))
    assert isinstance(error, PromptTooLong)
    assert "9 blocks" in str(error)
    assert "8 (32 tokens)" in str(error)
    job = rig.submit([1] * 10)
    rig.run()
    assert isinstance(sink_of(job).terminal, Finished)


def test_a_prompt_of_exactly_the_context_less_one_is_taken() -> None:
    rig = Rig(small(200))
    job = rig.submit([1] * 399)
    rig.run()
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert (terminal.reason, terminal.usage.n_output) == ("length", 1)


def test_an_empty_prompt_is_refused_and_the_engine_lives_on() -> None:
    rig = Rig()
    assert isinstance(error_of(rig.submit([])), BadRequest)
    job = rig.submit([1])
    rig.run()
    assert isinstance(sink_of(job).terminal, Finished)


def test_generation_stops_at_the_context_with_length() -> None:
    rig = Rig(Capacity(260, 40, 4, 64, (KVGroup(1),), 4, 16))
    job = rig.submit([1] * 10, sampling=SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))
    rig.run()
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert (terminal.reason, terminal.usage.n_output) == ("length", 30)


def test_an_output_that_outgrows_the_pool_alone_ends_with_length() -> None:
    rig = Rig(small(9))
    job = rig.submit([1] * 10, sampling=LONG)
    rig.run()
    terminal = sink_of(job).terminal
    assert isinstance(terminal, Finished)
    assert (terminal.reason, terminal.usage.n_output) == ("length", 22)


def test_a_full_queue_refuses_with_the_time_to_come_back() -> None:
    rig = Rig(small(40, max_slots=1), max_queued_requests=2)
    jobs = [rig.submit([i] * 8) for i in range(4)]
    error = error_of(jobs[3])
    assert isinstance(error, Overloaded)
    assert error.retry_after_s is not None
    assert error.retry_after_s >= 1
    rig.run()
    assert all(isinstance(sink_of(job).terminal, Finished) for job in jobs[:3])


def test_a_queue_full_of_tokens_refuses() -> None:
    rig = Rig(small(40, max_slots=1), max_queued_tokens=20)
    rig.submit([1] * 15)
    assert isinstance(error_of(rig.submit([2] * 15)), Overloaded)


def test_a_queue_of_length_zero_still_lets_an_idle_engine_work() -> None:
    rig = Rig(small(40, max_slots=2), max_queued_requests=0)
    jobs = [rig.submit([i] * 8) for i in range(3)]
    rig.run()
    assert [type(sink_of(job).terminal) for job in jobs] == [Finished, Finished, Failed]


# ----------------------------------------------------------------------------------------------------------------- time


def test_a_deadline_ends_a_running_request_and_a_waiting_one() -> None:
    rig = Rig(small(40, max_slots=1))
    running = rig.submit([1] * 8, sampling=LONG, deadline_s=0.5)
    waiting = rig.submit([2] * 8, sampling=LONG, deadline_s=0.2)
    rig.run()
    for job in (running, waiting):
        terminal = sink_of(job).terminal
        assert isinstance(terminal, Failed)
        assert terminal.error.code == "deadline_exceeded"
        assert terminal.error.status == 504
    assert sink_of(running).ids


def test_nobody_waits_in_line_longer_than_the_timeout() -> None:
    rig = Rig(small(150, max_slots=1), queue_timeout_s=1.0)
    rig.submit([1] * 8, sampling=LONG)
    waiting = rig.submit([2] * 8)
    rig.run()
    error = error_of(waiting)
    assert isinstance(error, Overloaded)
    assert error.retry_after_s


def test_a_running_request_is_not_subject_to_the_queues_timeout() -> None:
    rig = Rig(small(150), queue_timeout_s=0.05)
    job = rig.submit([1] * 8, sampling=SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))
    rig.run()
    assert isinstance(sink_of(job).terminal, Finished)


# ------------------------------------------------------------------------------------------------------------- the step


def test_decoding_never_stalls_behind_a_long_prompt() -> None:
    rig = Rig(small(200, max_tokens=64), max_num_batched_tokens=16)
    job = rig.submit([1] * 8, sampling=SamplingParams(temperature=0, max_tokens=60, ignore_eos=True))
    rig.loop.turn()
    rig.submit([2] * 300)
    before = len(sink_of(job).ids) + len(rig.loop.jobs[job.seq.key].output._ids)
    for _ in range(10):
        rig.loop.turn()
    after = job.seq.n_output
    assert after - before >= 10, "one token in each step"


def test_a_chunk_beside_running_streams_is_limited_by_measured_time() -> None:
    """A 4,000-token prompt arrives at a machine that computes 500 tokens a second: no step takes longer than the target, or little more."""
    capacity = Capacity(260, 5000, 16, 600, (KVGroup(1),), 20, 512)
    rig = Rig(capacity)
    rig.runner._options = FakeOptions(step_s=0.01, token_s=0.002, sleep=rig.clock.advance, eos_id=256)
    streams = [rig.submit([i] * 16, sampling=LONG) for i in range(16)]
    while any(job.seq.n_output == 0 for job in streams):
        rig.loop.turn()
    rig.submit([99] * 4000)
    longest = 0.0
    for _ in range(40):
        began = rig.clock.now()
        rig.loop.turn()
        longest = max(longest, rig.clock.now() - began)
    assert longest < 0.5


def test_a_budget_smaller_than_the_batch_goes_round() -> None:
    rig = Rig(small(200, max_slots=4, max_tokens=2))
    jobs = [rig.submit([i, 1, 2], sampling=SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)) for i in range(4)]
    rig.run()
    assert all(isinstance(sink_of(job).terminal, Finished) for job in jobs)


def test_a_long_prompt_at_the_head_lets_others_pass_and_gets_its_turn() -> None:
    rig = Rig(small(41, max_slots=4), age_s=0.2)
    holder = rig.submit([1] * 60, sampling=SamplingParams(temperature=0, max_tokens=50, ignore_eos=True))
    rig.loop.turn()
    long = rig.submit([2] * 120)
    short = rig.submit([3] * 4)
    rig.loop.turn()
    assert short.seq.slot >= 0, "the short one passes"
    late: list[Job] = []
    for i in range(200):
        if sink_of(long).terminal is not None:
            break
        late.append(rig.submit([4, i % 250, 5, 6], sampling=SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)))
        rig.loop.turn()
        rig.check()
    assert isinstance(sink_of(long).terminal, Finished), "the door stays shut until it fits"
    assert sink_of(holder).terminal is not None


# ----------------------------------------------------------------------------------------------------------- preemption


def test_long_outputs_on_a_small_pool_make_progress_and_the_oldest_is_never_the_victim() -> None:
    rig = Rig(small(31))
    jobs = [rig.submit([i] * 12, sampling=SamplingParams(temperature=0, max_tokens=80, ignore_eos=True)) for i in range(4)]
    rig.run(2000)
    assert all(isinstance(sink_of(job).terminal, Finished) for job in jobs)
    assert jobs[0].seq.n_preempted == 0
    assert sum(job.seq.n_preempted for job in jobs) > 0
    assert sum(job.seq.n_preempted for job in jobs) < 40, "no loop of admitting and preempting"


def test_a_preempted_request_comes_back_through_the_prefix_cache() -> None:
    rig = Rig(small(21, max_slots=2))
    rig.submit([1] * 30, sampling=SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
    second = rig.submit([2] * 30, sampling=SamplingParams(temperature=0, max_tokens=10, ignore_eos=True))
    rig.run()
    assert second.seq.n_preempted == 1
    assert rig.loop.kv.n_hit >= 20
    assert rig.runner.n_tokens < 30 + 30 + 30 + 10 + 25, "most of it is not computed twice"
    starts = [e for e in sink_of(second).events if isinstance(e, Started)]
    assert len(starts) == 1, "the client hears of its admission once"


def test_a_realtime_arrival_displaces_a_batch_row() -> None:
    rig = Rig(small(200, max_slots=2))
    batch = [rig.submit([i] * 8, sampling=LONG, priority=1) for i in range(2)]
    for _ in range(3):
        rig.loop.turn()
    realtime = rig.submit([9] * 8, priority=0)
    rig.loop.turn()
    assert realtime.seq.slot >= 0
    assert batch[1].seq.slot < 0, "the youngest batch row makes room"
    rig.run()
    assert isinstance(sink_of(batch[1]).terminal, Finished)


def test_nobody_is_displaced_where_it_would_not_make_enough_room() -> None:
    rig = Rig(small(41, max_slots=4))
    realtime = rig.submit([1] * 100, sampling=SamplingParams(temperature=0, max_tokens=20, ignore_eos=True), priority=0)
    batch = rig.submit([2] * 8, sampling=SamplingParams(temperature=0, max_tokens=30, ignore_eos=True), priority=1)
    for _ in range(9):
        rig.loop.turn()
    assert batch.seq.slot >= 0
    rig.submit([3] * 100, priority=0)
    rig.loop.turn()
    assert batch.seq.slot >= 0
    assert realtime.seq.slot >= 0
    rig.run()


# ------------------------------------------------------------------------------------------------------------- siblings


def test_siblings_wait_for_the_first_ones_prompt_and_copy_what_is_partial() -> None:
    rig = Rig(small(200, max_slots=4, max_tokens=16))
    prompt = list(range(50))
    jobs = [
        rig.submit(prompt, choice=i, siblings="call", sampling=SamplingParams(temperature=1.0, seed=5, max_tokens=6, ignore_eos=True))
        for i in range(4)
    ]
    rig.run()
    assert rig.runner.n_tokens == 50 + 3 + 4 * 5, "the prompt is computed once, and its last token once for each"
    assert len({sink_of(job).ids for job in jobs}) == 4, "equal seeds and different choices give different samples"


def test_siblings_of_another_client_with_the_same_name_share_nothing() -> None:
    rig = Rig(small(200))
    first = rig.submit([1] * 10, siblings="x", tenant="a")
    other = rig.submit([2] * 10, siblings="x", tenant="b")
    nearly = [1] * 8 + [3] * 2
    same_name = rig.submit(nearly, siblings="x", tenant="a")
    rig.run()
    for job, prompt in ((first, [1] * 10), (other, [2] * 10), (same_name, nearly)):
        fresh = Rig(small(200))
        again = fresh.submit(prompt)
        fresh.run()
        assert sink_of(job).ids == sink_of(again).ids


def test_a_hot_prefix_is_computed_once_though_all_come_at_once() -> None:
    rig = Rig(small(400, max_slots=4, max_tokens=16))
    jobs = [rig.submit([*range(80), 100 + i, 101]) for i in range(4)]
    rig.run()
    assert rig.runner.n_tokens <= 80 + 4 * 2 + 4 * 8 + 4
    assert [sink_of(job).terminal.usage.n_cached for job in jobs[1:]] == [80, 80, 80]  # type: ignore[union-attr]


@pytest.mark.parametrize("when", ["queued", "prefill", "decode", "finished"])
def test_an_abort_gives_everything_back_in_one_step_and_twice_is_once(when: str) -> None:
    rig = Rig(ROOMY, max_num_seqs=1 if when == "queued" else 4)
    if when == "queued":
        rig.submit([9] * 8, sampling=LONG)
        rig.loop.turn()
    before = rig.loop.kv.pool.n_in_use
    job = rig.submit([1] * 100, sampling=LONG)
    for _ in range({"queued": 1, "prefill": 1, "decode": 8, "finished": 0}[when]):
        rig.loop.turn()
    if when == "finished":
        rig.run()
    n_in_use = rig.loop.kv.pool.n_in_use
    rig.loop.abort(job)
    rig.loop.abort(job)
    rig.check()
    assert rig.loop.kv.pool.n_in_use == (n_in_use if when == "queued" else before)
    assert job.seq.key not in rig.loop.jobs
    assert job.seq.slot == -1
