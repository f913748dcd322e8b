"""Perplexity's arithmetic over a runner that scores by a rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from camshaft.bench.perplexity import perplexity
from camshaft.errors import ConfigError, EngineFault
from camshaft.types import Capacity, KVGroup, Mask, RawLogprob, Row, RowResult, SamplingParams, StepPlan, StepResult


class RuleRunner:
    """ln p of a token is minus the token's own id over 10, whatever came before. Keeps what it was asked."""

    invariant = True
    numerics_id = "rule"

    def __init__(self, max_tokens: int = 512, n_blocks: int = 100, finite: bool = True) -> None:
        self.rows: list[Row] = []
        self.prompts: list[tuple[int, ...]] = []
        self.released = 0
        self._finite = finite
        self._capacity = Capacity(50, 600, 16, n_blocks, (KVGroup(1), KVGroup(1, 8)), 1, max_tokens)

    def capacity(self) -> Capacity:
        return self._capacity

    def open(self, slot: int, params: SamplingParams, choice: int, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        self.prompts.append(tuple(prompt_ids))

    def release(self, slot: int) -> None:
        self.released += 1

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        (row,) = plan.rows
        self.rows.append(row)
        known = self.prompts[-1][row.start + 1 : row.start + len(row.ids) + 1]
        scores = tuple(RawLogprob(id, -id / 10 if self._finite else math.nan) for id in known)
        return StepResult((RowResult(ids=(), scores=scores),), 0.0)

    def close(self) -> None: ...


def test_without_bos_the_first_token_of_a_window_has_no_score() -> None:
    result = perplexity(RuleRunner(), [9, 1, 2, 9, 3, 4, 7], window=3)
    assert result.n_scored == 4
    assert result.mean_nll == pytest.approx((1 + 2 + 3 + 4) / 40)
    assert result.value == pytest.approx(math.exp(0.25))


def test_with_bos_every_token_has_a_score_and_each_window_starts_anew() -> None:
    runner = RuleRunner()
    result = perplexity(runner, [1, 2, 3, 4], bos_id=49, window=2)
    assert runner.prompts == [(49, 1, 2), (49, 3, 4)]
    assert result.n_scored == 4
    assert result.mean_nll == pytest.approx((1 + 2 + 3 + 4) / 40)


def test_a_window_longer_than_a_step_is_computed_in_chunks() -> None:
    runner = RuleRunner(max_tokens=20)
    assert perplexity(runner, [1] * 50, window=50).n_scored == 49
    assert [(row.start, row.n_new, row.n_sample, row.score) for row in runner.rows] == [
        (0, 20, 0, True),
        (20, 20, 0, True),
        (40, 10, 0, True),
    ]


def test_groups_get_blocks_of_their_own_and_never_block_zero() -> None:
    runner = RuleRunner()
    perplexity(runner, [1] * 40, window=40)
    assert [(p.group, p.index, p.ids) for p in runner.rows[0].patches] == [(0, 0, (1, 2, 3)), (1, 0, (4, 5, 6))]


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a text of 512 tokens or more, not 3"):
        perplexity(RuleRunner(), [1, 2, 3])
    with pytest.raises(ConfigError, match="a sequence of 512 tokens does not fit"):
        perplexity(RuleRunner(n_blocks=10), [1] * 512)
    with pytest.raises(ConfigError, match="a sequence of 601 tokens does not fit"):
        perplexity(RuleRunner(), [1] * 600, bos_id=0, window=600)


def test_logits_that_are_not_finite_are_a_fault_and_the_slot_is_released() -> None:
    runner = RuleRunner(finite=False)
    with pytest.raises(EngineFault, match="not finite"):
        perplexity(runner, [1] * 512)
    assert runner.released == 1
