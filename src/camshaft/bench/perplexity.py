"""Perplexity: how surprised a model is by a text. Each window of the text is scored on its own, with no context before it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from msgspec import Struct

from camshaft.bench.steps import whole_table
from camshaft.errors import ConfigError, EngineFault
from camshaft.types import Row, Runner, SamplingParams, StepPlan

WINDOW = 512
_SLOT = 0
# Scores of the prompt alone, no rivals. Nothing is sampled, but a runner wants a seed.
_SCORE = SamplingParams(temperature=0.0, seed=0, prompt_logprobs=0)


class Perplexity(Struct, frozen=True):
    """Over `n_scored` tokens: `mean_nll` is the mean of -ln p(token), in nats."""

    mean_nll: float
    n_scored: int

    @property
    def value(self) -> float:
        return math.exp(self.mean_nll)


def perplexity(runner: Runner, ids: Sequence[int], *, bos_id: int | None = None, window: int = WINDOW) -> Perplexity:
    """Scores `ids` in windows of `window` tokens; what is left at the end and does not fill one is dropped.

    Without `bos_id` the first token of a window is context for the others and has no score: a window gives window - 1 scores. With it
    every window is preceded by that id, and its first token is scored as well. Raises ConfigError where the text or the context is
    shorter than a window, and EngineFault where the model's logits are not finite.
    """
    total, n_scored = 0.0, 0
    for begin in range(0, len(ids) - window + 1, window):
        part = tuple(ids[begin : begin + window])
        for logprob in _scores(runner, part if bos_id is None else (bos_id, *part)):
            total -= logprob
            n_scored += 1
    if n_scored == 0:
        raise ConfigError(f"a perplexity needs a text of {window} tokens or more, not {len(ids)}")
    return Perplexity(total / n_scored, n_scored)


def _scores(runner: Runner, ids: tuple[int, ...]) -> Iterator[float]:
    """ln p(ids[i + 1] | ids[: i + 1]) for each i, computed in as large chunks as a step takes."""
    capacity = runner.capacity()
    patches = whole_table(capacity, len(ids))  # the runner is ours alone here
    runner.open(_SLOT, _SCORE, 0, ids, ())
    try:
        for start in range(0, len(ids), capacity.max_tokens):
            chunk = ids[start : start + capacity.max_tokens]
            row = Row(slot=_SLOT, start=start, ids=chunk, n_sample=0, patches=patches if start == 0 else (), score=True)
            for score in runner.step(StepPlan((row,)), {}).rows[0].scores:
                if not math.isfinite(score.logprob):
                    raise EngineFault(f"the model's logits are not finite near position {start}")
                yield score.logprob
    finally:
        runner.release(_SLOT)
