"""Steps lays out its sequences so that none overlaps another, and fills what it reads."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from camshaft.bench.steps import Steps, whole_table
from camshaft.errors import ConfigError
from camshaft.runners.fake import FakeRunner
from camshaft.types import Capacity, KVGroup, Mask, Row, StepPlan, StepResult

ROOM = Capacity(
    vocab_size=100, max_model_len=256, block_size=16, n_blocks=65, groups=(KVGroup(1), KVGroup(1, 8)), max_slots=4, max_tokens=32
)


class WatchedRunner(FakeRunner):
    """Keeps the rows that it was asked for. The fake refuses a plan that reads what was never written."""

    def __init__(self) -> None:
        super().__init__(ROOM)
        self.rows: list[Row] = []

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        self.rows += plan.rows
        return super().step(plan, masks)


def test_tables_of_several_sequences_share_no_block() -> None:
    dealt = [id for nth in range(3) for patch in whole_table(ROOM, 100, nth) for id in patch.ids]
    assert len(dealt) == len(set(dealt)) == 3 * 2 * 7
    assert min(dealt) == 1


def test_a_sequence_without_room_is_refused() -> None:
    with pytest.raises(ConfigError, match="does not fit"):
        whole_table(ROOM, 257)
    with pytest.raises(ConfigError, match="does not fit"):
        whole_table(ROOM, 256, nth=2)
    with pytest.raises(ConfigError, match="max-num-seqs 4"):
        Steps(WatchedRunner(), n_rows=5, n_positions=16)


def test_filling_computes_every_position_once_in_chunks_that_a_step_takes() -> None:
    runner = WatchedRunner()
    steps = Steps(runner, n_rows=2, n_positions=80)
    steps.fill(72)
    assert [(row.slot, row.start, row.n_new) for row in runner.rows] == [
        (slot, start, min(32, 72 - start)) for slot in (0, 1) for start in (0, 32, 64)
    ]
    steps.close()


def test_a_step_takes_so_many_new_tokens_of_every_sequence() -> None:
    runner = WatchedRunner()
    steps = Steps(runner, n_rows=2, n_positions=80)
    steps.fill(72)
    runner.rows.clear()
    assert steps.seconds(start=72, n_new=4) > 0
    assert steps.seconds(start=76) > 0
    assert [(row.slot, row.start, row.n_new, row.n_sample) for row in runner.rows] == [
        (0, 72, 4, 1),
        (1, 72, 4, 1),
        (0, 76, 1, 1),
        (1, 76, 1, 1),
    ]
    steps.close()
