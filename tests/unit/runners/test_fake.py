"""The fake runner notices what it is there to notice."""

from __future__ import annotations

import pytest

from camshaft.runners.fake import FakeRunner, PlanError
from camshaft.types import BlockCopy, Capacity, KVGroup, Row, SamplingParams, StepPlan, TablePatch

CAPACITY = Capacity(100, 64, 4, 10, (KVGroup(1),), 3, 16)
GREEDY = SamplingParams(temperature=0, seed=1)


def runner(window: int | None = None) -> FakeRunner:
    fake = FakeRunner(Capacity(100, 64, 4, 10, (KVGroup(1, window),), 3, 16))
    for slot in range(2):
        fake.open(slot, GREEDY, 0, (1, 2, 3, 4, 5), ())
    return fake


def row(slot: int, start: int, ids: tuple[int, ...], *blocks: int, index: int = 0, n_sample: int = 1) -> Row:
    return Row(slot, start, ids, n_sample, (TablePatch(0, index, blocks),) if blocks else ())


def sampled(fake: FakeRunner, *rows: Row, copies: tuple[BlockCopy, ...] = ()) -> list[int]:
    return [r.ids[0] for r in fake.step(StepPlan(rows, copies), {}).rows]


def test_the_same_context_gives_the_same_token_whatever_blocks_and_chunks() -> None:
    one, other = runner(), runner()
    whole = sampled(one, row(0, 0, (1, 2, 3, 4, 5), 1, 2))
    other.step(StepPlan((row(0, 0, (1, 2), 7, n_sample=0),)), {})
    assert sampled(other, row(0, 2, (3, 4, 5), 3, index=1)) == whole


def test_a_wrong_block_changes_the_token() -> None:
    right, wrong = runner(), runner()
    for fake in (right, wrong):
        fake.step(StepPlan((row(0, 0, (1, 2, 3, 4, 5), 1, 2), row(1, 0, (9, 9, 9, 9, 9), 3, 4))), {})
    assert sampled(right, row(0, 5, (6,))) != sampled(wrong, Row(0, 5, (6,), 1, (TablePatch(0, 0, (5,)),)))


def test_a_copy_carries_the_context() -> None:
    fake = runner()
    token = sampled(fake, row(0, 0, (1, 2, 3, 4, 5), 1, 2))
    assert sampled(fake, row(1, 4, (5,), 1, 3), copies=(BlockCopy(2, 3),)) == token


def test_seed_choice_and_temperature_key_the_draw() -> None:
    tokens = set()
    for seed, choice in ((1, 0), (1, 1), (2, 0)):
        fake = FakeRunner(CAPACITY)
        fake.open(0, SamplingParams(temperature=1.0, seed=seed), choice, (1,), ())
        tokens.add(sampled(fake, row(0, 0, (1,), 1))[0])
    assert len(tokens) == 3


@pytest.mark.parametrize(
    ("rows", "copies", "what"),
    [
        ((row(0, 0, (1,), 1), row(0, 1, (2,), 1)), (), "two rows"),
        ((row(2, 0, (1,), 1),), (), "not open"),
        ((row(0, 0, tuple(range(17)), 1, 2, 3, 4, 5),), (), "17 tokens"),
        ((row(0, 0, (1,)),), (), "no block"),
        ((row(0, 0, (1,), 0),), (), "no block"),
        ((row(0, 0, (), 1),), (), "0 tokens"),
        ((row(0, 0, (100,), 1),), (), "vocabulary"),
        ((row(0, 64, (1,), 1),), (), "context"),
        ((row(0, 0, (1,), 10),), (), "patch"),
        ((row(0, 0, (1,), 1), row(1, 0, (1,), 1)), (), "share"),
        ((row(0, 0, (1,), 1),), (BlockCopy(0, 1),), "copy"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_plan_that_breaks_the_contract_is_refused(rows: tuple[Row, ...], copies: tuple[BlockCopy, ...], what: str) -> None:
    with pytest.raises(PlanError, match=what):
        runner().step(StepPlan(rows, copies), {})


def test_a_gap_between_two_rows_is_refused() -> None:
    fake = runner()
    fake.step(StepPlan((row(0, 0, (1, 2), 1),)), {})
    with pytest.raises(PlanError, match="goes on at 3, not at 2"):
        fake.step(StepPlan((row(0, 3, (4,)),)), {})


def test_a_window_hides_what_lies_behind_it_and_nothing_that_lies_in_it() -> None:
    fake = runner(window=4)
    fake.step(StepPlan((row(0, 0, (1, 2, 3, 4, 5, 6, 7), 1, 2, n_sample=0),)), {})
    # Position 7 sees 4 to 7: block 0 may be gone.
    assert sampled(fake, Row(0, 7, (8,), 1, (TablePatch(0, 0, (0,)),)))
    with pytest.raises(PlanError, match="visible"):
        fake.step(StepPlan((Row(0, 8, (9,), 1, (TablePatch(0, 1, (0, 3)),)),)), {})


def test_a_mask_decides_what_may_be_drawn_and_an_empty_one_leaves_nothing() -> None:
    fake = runner()
    mask = (1 << 42).to_bytes(16, "little")
    assert fake.step(StepPlan((row(0, 0, (1,), 1),)), {0: mask}).rows[0].ids == (42,)
    assert fake.step(StepPlan((row(0, 1, (2,)),)), {0: bytes(16)}).rows[0].ids == (-1,)


def test_slots_are_opened_once_and_released_as_often_as_you_like() -> None:
    fake = runner()
    with pytest.raises(PlanError, match="open already"):
        fake.open(0, GREEDY, 0, (1,), ())
    fake.release(0)
    fake.release(0)
    fake.open(0, GREEDY, 0, (1,), ())
    with pytest.raises(PlanError, match="seeds"):
        fake.open(2, SamplingParams(), 0, (1,), ())
