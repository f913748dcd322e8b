"""Who decodes in a step where not all can or should, and what batch work costs those ahead of it."""

from __future__ import annotations

import pytest

from camshaft.sched.pace import SIDE_STRETCH, SIDE_YIELD, Fit, Pace
from camshaft.sched.sequence import Sequence
from camshaft.sched.split import spare
from camshaft.sched.turns import Turns
from camshaft.types import Request, TokenPrompt


def sequences(ranks: list[int]) -> list[Sequence]:
    made = [Sequence(i, Request(id=str(i), prompt=TokenPrompt((1,))), (1,), 0.0) for i in range(len(ranks))]
    for seq, rank in zip(made, ranks, strict=True):
        seq.rank = rank
    return made


def taught(base_s: float, each_s: float) -> Pace:
    pace = Pace()
    for n in (1, 4, 8, 16) * 20:
        pace.observe(0, n, base_s + each_s * n)
    return pace


def test_a_line_is_found_in_step_times() -> None:
    fit = Fit()
    assert fit.line() == (0.0, 0.0)
    for n in (2, 8, 16) * 30:
        fit.add(n, 0.01 + 0.002 * n)
    assert fit.line() == pytest.approx((0.01, 0.002))


def test_steps_that_are_all_alike_are_split_in_half() -> None:
    fit = Fit()
    for _ in range(50):
        fit.add(16, 0.032)
    assert fit.line() == pytest.approx((0.016, 0.001))


def test_worse_classes_take_turns_and_stretch_the_best_ones_steps_only_so_far() -> None:
    base_s, each_s = 0.012, 0.002
    turns = Turns(16, 512, taught(base_s, each_s))
    seqs = sequences([0] * 4 + [1] * 12)
    served = dict.fromkeys(seqs, 0)
    for _ in range(400):
        for seq in turns.choose(seqs):
            served[seq] += 1
    assert all(served[seq] == 400 for seq in seqs[:4])
    side = [served[seq] for seq in seqs[4:]]
    assert max(side) - min(side) <= 1
    assert sum(side) * each_s <= 0.5 * SIDE_STRETCH * (1 - 0.25 / SIDE_YIELD) * 400 * (base_s + 4 * each_s) + 0.2
    assert min(side) > 0


def test_worse_classes_get_nothing_where_the_best_one_needs_nearly_all_places() -> None:
    turns = Turns(16, 512, taught(0.012, 0.002))
    seqs = sequences([0] * 12 + [1] * 4)
    assert all(turns.choose(seqs) == seqs[:12] for _ in range(400))
    assert turns.resting == set(seqs[12:])


def test_a_prompt_of_a_worse_class_gets_on_though_none_of_its_class_decodes() -> None:
    pace = taught(0.012, 0.002)
    pace.observe(100, 1, 0.014 + 100 * 0.0004)
    turns = Turns(16, 512, pace)
    seqs = sequences([0, 1])
    seqs[1].ids = [1] * 300
    n_given = 0
    for _ in range(300):
        assert turns.choose(seqs) == seqs[:1]
        n = pace.side_cap()
        pace.side_used(n)
        n_given += n
    assert n_given >= 300


def test_alone_a_class_is_not_held_back() -> None:
    turns = Turns(16, 512, taught(0.012, 0.002))
    batch = sequences([1] * 12)
    assert turns.choose(batch) == batch
    assert not turns.resting


def test_more_than_a_step_holds_take_turns() -> None:
    turns = Turns(16, 4, Pace())
    seqs = sequences([0] * 6)
    served = [seq for _ in range(3) for seq in turns.choose(seqs)]
    assert {served.count(seq) for seq in seqs} == {2}


def test_prompts_of_a_worse_class_share_a_cap() -> None:
    given = [64, 200, 40, 30]
    assert spare(given, [True, False, True, True], 70) == 70
    assert given == [64, 200, 6, 0]
    given = [10, 20]
    assert spare(given, [False, True], 100) == 20
    assert given == [10, 20]
