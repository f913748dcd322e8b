"""What another process that takes a core costs: prefill and decode with 1 thread and with all, with such a neighbour and without.

    python bench/busy_neighbour.py [--rounds 5] [--threads 2]

The neighbour counts on the last core that this process may use. Two engines, one for each number of threads, live side by side, and each
round measures all four cases, so that a machine whose speed drifts does not decide.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import harness

from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.engine.llm import LLM
from camshaft.types import SamplingParams, TokenPrompt

PREFILL, DECODE = 512, 64
LEAST_SHARE = 1.0  # all threads beside a busy neighbour, over one thread beside it


@contextmanager
def neighbour(core: int) -> Iterator[None]:
    child = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{core}}})\nwhile True: pass"])
    try:
        time.sleep(0.3)  # it has started by then
        yield
    finally:
        child.kill()
        child.wait()


def seconds(llm: LLM, dice: random.Random, prompt: int, gen: int) -> float:
    ids = tuple(dice.randrange(3, llm.model.vocab_size) for _ in range(prompt))
    began = time.perf_counter()
    llm.generate(TokenPrompt(ids), SamplingParams(temperature=0, max_tokens=gen, ignore_eos=True))
    return time.perf_counter() - began


def measure(llm: LLM, dice: random.Random) -> tuple[float, float]:
    """Tokens a second: prefill, decode."""
    prefill = PREFILL / seconds(llm, dice, PREFILL, 1)
    return prefill, DECODE / (seconds(llm, dice, 16, DECODE + 1) - seconds(llm, dice, 16, 1))


def main() -> int:
    parser = harness.parser(__doc__, "busy_neighbour")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=_native.usable_cores())
    args = parser.parse_args()
    config = {n: EngineConfig(threads=n, prefix_caching=False, max_num_seqs=2) for n in (1, args.threads)}
    found: dict[str, list[float]] = {}
    dice = random.Random(0)
    core = max(os.sched_getaffinity(0))
    with LLM(args.model, config=config[1]) as one, LLM(args.model, config=config[args.threads]) as all_threads:
        for llm in (one, all_threads):
            measure(llm, dice)  # first touch of pages and caches
        for _ in range(args.rounds):
            for busy in (False, True):
                for n, llm in ((1, one), (args.threads, all_threads)):
                    if busy:
                        with neighbour(core):
                            figures = measure(llm, dice)
                    else:
                        figures = measure(llm, dice)
                    for what, tok_s in zip(("prefill", "decode"), figures, strict=True):
                        found.setdefault(f"{what}, {n} threads{', busy neighbour' if busy else ''}", []).append(tok_s)
    lines = [harness.Line(what, f"{statistics.median(of):.0f} tok/s ({min(of):.0f} to {max(of):.0f})") for what, of in found.items()]
    for what in ("prefill", "decode"):
        for beside in ("", ", busy neighbour"):
            several, single = (found[f"{what}, {n} threads{beside}"] for n in (args.threads, 1))
            share = statistics.median(a / b for a, b in zip(several, single, strict=True))
            bar = (f"{LEAST_SHARE}", share >= LEAST_SHARE) if beside else ("", None)
            lines.append(harness.Line(f"{what}, {args.threads} threads over 1{beside}", f"{share:.2f} x", *bar))
    return harness.finish(args.out, harness.verdicts(lines), found, lines)


if __name__ == "__main__":
    sys.exit(main())
