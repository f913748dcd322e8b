"""What a long request does to others: a 4,000-token prompt among 16 streams, and a 2,048-token answer beside ten of 128.

    python bench/pauses.py [--streams 16] [--prompt 4000] [--long 2048] [--rounds 4]

(a) Streams are running when the prompt arrives. Measured: the longest pause of any stream, from its arrival to a second after its first
token, and the time to that token. (b) Ten short answers and one long one start together; then the same with a long one that is as short
as the others. Measured: how much later the short ones end, in seconds, and in steps of the engine, which no neighbour of this machine can
slow down; medians over interleaved rounds.
"""

from __future__ import annotations

import asyncio
import random
import re
import statistics
import sys
from itertools import pairwise
from typing import NamedTuple

import harness

from camshaft.bench.sse_client import Reply, Target

LONGEST_PAUSE_S = 0.5
MOST_SLOWER = 1.1  # times as long as without the long answer: what rounds of the same thing differ by
SHORT, N_SHORT = 128, 10
SETTLE_S = 6.0  # until all streams run and the pace of steps is known
CONTEXT = 4096
LIMIT_S = 1800.0
STEPS = re.compile(r"^camshaft_iteration_tokens_total_count(?:\{.*\})? (\S+)$", re.MULTILINE)


class Side(NamedTuple):
    """What it took until the last of the short answers ended."""

    seconds: float
    steps: int


class Pause(NamedTuple):
    """Seconds."""

    before: float  # longest while nothing else happened
    during: float
    p99: float  # of the gaps in that time
    ttft: float  # of the long prompt


async def long_prompt(target: Target, n_streams: int, n_prompt: int, dice: random.Random) -> Pause:
    replies = [Reply(sent_at=0.0) for _ in range(n_streams)]
    asks = [harness.stream(target, harness.random_ids(dice, 64), CONTEXT - 65, into=reply) for reply in replies]
    streams = [asyncio.create_task(ask) for ask in asks]
    await asyncio.sleep(SETTLE_S)
    late = await harness.stream(target, harness.random_ids(dice, n_prompt), 8)
    await asyncio.sleep(1.0)
    for task in streams:
        if task.done():
            raise RuntimeError(f"a stream was over before the prompt was: {task.exception()}")
        task.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    before: list[float] = []
    during: list[float] = []
    for reply in replies:
        times = harness.text_times(reply)
        for sooner, later in pairwise(times[1:]):
            (during if later > late.sent_at else before).append(later - sooner)
    return Pause(max(before), max(during), harness.quantile(during, 0.99), harness.ttft(late))


async def side_by_side(target: Target, n_long: int, dice: random.Random) -> Side:
    """Short answers beside one of `n_long` tokens."""
    before = await asyncio.to_thread(steps_of, target)
    long = asyncio.create_task(harness.stream(target, harness.random_ids(dice, 32), n_long))
    short = [harness.stream(target, harness.random_ids(dice, 32), SHORT) for _ in range(N_SHORT)]
    replies = await asyncio.gather(*short)
    after = await asyncio.to_thread(steps_of, target)
    await long
    return Side(max(reply.done_at for reply in replies) - min(reply.sent_at for reply in replies), after - before)


def steps_of(target: Target) -> int:
    """Steps of the engine since the server started."""
    found = STEPS.search(harness.fetch(target, "/metrics"))
    if found is None:
        raise RuntimeError("the server does not count its steps")
    return int(float(found[1]))


async def measure(target: Target, n_streams: int, n_prompt: int, n_long: int, rounds: int) -> dict[str, list[Side] | list[Pause]]:
    dice = random.Random(7)
    await side_by_side(target, SHORT, dice)  # first touch of pages and caches
    with_long, without = [], []
    for number in range(rounds):
        # In turn: a machine that gets slower or faster over a round favours neither.
        if number % 2 == 0:
            with_long.append(await side_by_side(target, n_long, dice))
        without.append(await side_by_side(target, SHORT, dice))
        if number % 2:
            with_long.append(await side_by_side(target, n_long, dice))
    pauses = [await long_prompt(target, n_streams, n_prompt, dice) for _ in range(rounds)]
    return {"with_long": with_long, "without": without, "pauses": pauses}


def main() -> int:
    parser = harness.parser(__doc__, "pauses")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=4000, help="tokens of the prompt that arrives")
    parser.add_argument("--long", type=int, default=2048, help="tokens of the long answer")
    parser.add_argument("--rounds", type=int, default=4)
    args = parser.parse_args()
    with harness.serving("--max-model-len", str(CONTEXT), "--max-num-seqs", "32", model=args.model) as server:
        found = harness.run(measure(server.target, args.streams, args.prompt, args.long, args.rounds), LIMIT_S)
    pauses: list[Pause] = found["pauses"]
    longest = max(pause.during for pause in pauses)
    pairs: list[tuple[Side, Side]] = list(zip(found["with_long"], found["without"], strict=True))
    slower = statistics.median(beside.seconds / alone.seconds for beside, alone in pairs)
    took = statistics.median(beside.seconds for beside, _ in pairs)
    longer = statistics.median(beside.steps / alone.steps for beside, alone in pairs)
    what = f"longest pause of {args.streams} streams, {args.prompt} tokens arriving"
    what_short = f"{N_SHORT} answers of {SHORT} beside one of {args.long}, over beside one of {SHORT}"
    lines = [
        harness.Line(what, f"{longest:.2f} s", f"{LONGEST_PAUSE_S} s", longest <= LONGEST_PAUSE_S),
        harness.Line("the same, 99th percentile", f"{max(pause.p99 for pause in pauses):.2f} s"),
        harness.Line("longest pause before it arrived", f"{max(pause.before for pause in pauses):.2f} s"),
        harness.Line("its time to first token", f"{statistics.median(pause.ttft for pause in pauses):.1f} s"),
        harness.Line(f"{what_short}: time", f"{slower:.2f} x ({took:.2f} s)", f"{MOST_SLOWER} x", slower <= MOST_SLOWER),
        harness.Line(f"{what_short}: steps", f"{longer:.2f} x", f"{MOST_SLOWER} x", longer <= MOST_SLOWER),
    ]  # fmt: skip
    figures = {name: [record._asdict() for record in records] for name, records in found.items()}
    return harness.finish(args.out, harness.verdicts(lines), figures, lines)


if __name__ == "__main__":
    sys.exit(main())
