"""Prompt log-probabilities: how surprised the model is by a text, and by which of its tokens."""

from __future__ import annotations

import math

from camshaft import LLM, SamplingParams
from camshaft.types import TokenLogprob

SENTENCES = [
    "The cat sat on the mat and looked out of the window.",
    "The cat sat on the theorem and looked out of the window.",
    "Mat the on sat cat the and window the of out looked.",
]


def perplexity(scores: tuple[TokenLogprob, ...]) -> float:
    """exp of the mean negative log-probability; a prompt's first token has none, since nothing predicts it."""
    known = [s.logprob for s in scores if s.logprob is not None]
    return math.exp(-sum(known) / len(known))


def main() -> None:
    # Nothing is generated: the prompt alone is computed, and scored at each of its positions.
    score_only = SamplingParams(max_tokens=0, prompt_logprobs=1)
    with LLM() as llm:
        values = []
        for sentence, answer in zip(SENTENCES, llm.generate(SENTENCES, score_only), strict=True):
            values.append(perplexity(answer.prompt_logprobs))
            print(f"{values[-1]:8.1f}  {sentence}")
            worst = min((s for s in answer.prompt_logprobs if s.logprob is not None), key=lambda s: s.logprob or 0.0)
            rather = worst.top[0].token.decode(errors="replace")
            print(f"          least expected: {worst.token.decode(errors='replace')!r}; the model would rather have said {rather!r}")
        assert values == sorted(values)


if __name__ == "__main__":
    main()
