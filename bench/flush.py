"""The cost of the flush delay: server CPU, events and the time between them at 0, 30 and 100 ms, with 16 streams.

    python bench/flush.py [--streams 16] [--tokens 128] [--waves 2] [--rounds 3]

`delay alone` lets only the delay decide (1,024 tokens, no breaks); `as shipped` flushes at 3 tokens and breaks too. Settings are measured
in turn, round by round, each on a server of its own; figures are medians.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import time
from typing import NamedTuple

import harness

from camshaft.bench.sse_client import Reply, Target

LIMIT_S = 600.0
ALONE = ("--flush-tokens", "1024", "--flush-breaks", "false")
SETTINGS: dict[str, tuple[str, ...]] = {
    "each token at once": ("--flush-ms", "0"),
    "30 ms, delay alone": ("--flush-ms", "30", *ALONE),
    "100 ms, delay alone": ("--flush-ms", "100", *ALONE),
    "30 ms, as shipped": (),
    "100 ms, 3 tokens, breaks": ("--flush-ms", "100"),
}


class Cost(NamedTuple):
    """Of one setting in one round."""

    cpu_s_per_1000: float  # processor seconds of the server for 1,000 generated tokens
    tok_s: float
    events: float  # per answer, with text
    gap_p50_ms: float
    gap_p99_ms: float
    ttft_ms: float  # median


async def measure(server: harness.Server, n_streams: int, n_out: int, waves: int) -> Cost:
    dice = random.Random(3)
    await wave(server.target, n_streams, 8, dice)  # first touch of pages and caches
    cpu, began = server.cpu_s(), time.perf_counter()
    replies = [reply for _ in range(waves) for reply in await wave(server.target, n_streams, n_out, dice)]
    seconds, cpu = time.perf_counter() - began, server.cpu_s() - cpu
    n_tokens = n_streams * n_out * waves
    between = [gap for reply in replies for gap in harness.gaps(reply)]
    return Cost(
        1000 * cpu / n_tokens,
        n_tokens / seconds,
        statistics.fmean(len(harness.text_times(reply)) for reply in replies),
        1000 * harness.quantile(between, 0.5),
        1000 * harness.quantile(between, 0.99),
        1000 * statistics.median(harness.ttft(reply) for reply in replies),
    )


async def wave(target: Target, n_streams: int, n_out: int, dice: random.Random) -> list[Reply]:
    return await asyncio.gather(*(harness.stream(target, harness.random_ids(dice, 32), n_out) for _ in range(n_streams)))


def main() -> int:
    parser = harness.parser(__doc__, "flush")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--waves", type=int, default=2, help="of so many streams, one after the other")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    seen: dict[str, list[Cost]] = {name: [] for name in SETTINGS}
    stages: dict[str, dict[str, float]] = {}
    for _ in range(args.rounds):
        for name, flags in SETTINGS.items():
            with harness.serving("--max-num-seqs", str(args.streams), *flags, model=args.model) as server:
                seen[name].append(harness.run(measure(server, args.streams, args.tokens, args.waves), LIMIT_S))
                stages[name] = server.stages()
    medians = {name: Cost(*(statistics.median(column) for column in zip(*costs, strict=True))) for name, costs in seen.items()}
    heads = ("flush", "CPU s per 1,000 tokens", "tok/s", "events per answer", "between events p50, ms", "p99, ms", "TTFT, ms")
    rows = [
        (
            name,
            f"{c.cpu_s_per_1000:.2f}",
            f"{c.tok_s:.0f}",
            f"{c.events:.1f}",
            f"{c.gap_p50_ms:.0f}",
            f"{c.gap_p99_ms:.0f}",
            f"{c.ttft_ms:.0f}",
        )
        for name, c in medians.items()
    ]
    spent = [(name, *(f"{1000 * seconds:.2f}" for seconds in by_stage.values())) for name, by_stage in stages.items()]
    text = harness.table(heads, rows) + "\n\n" + harness.table(("ms of a request", *next(iter(stages.values()))), spent)
    figures = {"settings": {name: [cost._asdict() for cost in costs] for name, costs in seen.items()}, "stages_s": stages}
    return harness.finish(args.out, text, figures)


if __name__ == "__main__":
    sys.exit(main())
