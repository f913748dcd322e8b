"""Offline: a list of prompts in, a list of completions out. They run as one batch, and no answer depends on its neighbours."""

from __future__ import annotations

import time

from camshaft import LLM, SamplingParams

PROMPTS = [
    "The capital of France is",
    "A camshaft is a part of an engine that",
    "The first three prime numbers are",
    "To make tea, first",
]


def main() -> None:
    greedy = SamplingParams(temperature=0.0, max_tokens=32)
    with LLM() as llm:  # the default model, fetched at first use
        began = time.perf_counter()
        together = llm.generate(PROMPTS, greedy)
        seconds = time.perf_counter() - began
        for prompt, answer in zip(PROMPTS, together, strict=True):
            print(f"{prompt}|{answer.text.strip()!r} ({answer.finish_reason}, {answer.usage.n_output} tokens)")

        n = sum(answer.usage.n_output for answer in together)
        print(f"\n{n} tokens in {seconds:.2f} s, {n / seconds:.0f} tok/s")

        # Scheduling never changes output: one by one gives the same ids as all at once.
        alone = [llm.generate(prompt, greedy)[0] for prompt in PROMPTS]
        assert [a.ids for a in alone] == [a.ids for a in together]

        # Two choices of one prompt. Drawn with a seed, they come out the same on every run.
        for choice in llm.generate(PROMPTS[1], SamplingParams(temperature=0.8, seed=7, n=2, max_tokens=24)):
            print(f"* {choice.text.strip()}")


if __name__ == "__main__":
    main()
