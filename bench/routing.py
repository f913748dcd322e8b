"""Routing policies on a recorded conversation trace, in virtual time: the gateway's router before four replicas that are a few numbers.

    python bench/routing.py --trace conversation_trace.jsonl [--prefill-us 80] [--requests 2000]

The trace (Mooncake's format) names 512-token blocks by hash and has its times on a grid of 3 s; each request is moved within its 3 s by a
seeded die. Waiting requests stand in one line before the router, first come first served among those that find room; `round_robin` alone
sends everything on at once, as a plain proxy does. A replica computes steps of at most 2,048 tokens; a step takes a constant, so much a
prompt token and so much a decoding sequence. Hits are those of the replicas' own caches, not the router's belief. `even` is the farthest
that one replica's computed prompt tokens lie from the mean of the four, in a span of five minutes.
"""

from __future__ import annotations

import json
import random
import sys
from collections import deque
from collections.abc import Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import harness

from camshaft.bench.model_replica import ModelReplica
from camshaft.bench.virtual import Shape, Task, Timeline
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.policy import Job, RouteConfig, make_policy
from camshaft.gateway.prefix import BLOCK
from camshaft.gateway.route import Lease, Router
from camshaft.types import ReplicaInfo

TRACE_BLOCK = 512  # tokens that one of the trace's hashes names
GRID_S = 3.0
SPAN_S = 300.0
N_REPLICAS = 4
LOOK_AHEAD = 16  # waiting requests that are tried in turn
AMPLE_TOKENS = 1 << 27
SHAPE = Shape(max_num_seqs=256, max_num_batched_tokens=2048, step_s=0.008, prefill_s=80e-6, decode_s=0.0003, block_size=TRACE_BLOCK)
USUAL_OUTPUT = 343  # tokens, the trace's mean: a gateway knows no more of an answer before it is given
TIGHT_BLOCKS = 2000  # a replica: 1,024,000 tokens


class Arrival(NamedTuple):
    at_s: float
    n_prompt: int
    n_output: int
    blocks: tuple[int, ...]  # full ones


class Run(NamedTuple):
    """One policy over the whole trace."""

    ttft_s: list[float]
    n_hit: int  # prompt tokens
    uneven: list[float]  # of each span of five minutes
    work: float  # share of the replicas' time that prompt and output tokens took
    n_waited: int  # requests that found no room at first


class Case(NamedTuple):
    name: str
    config: RouteConfig


CASES = (
    Case("prefix_cost", RouteConfig()),
    Case("least_tokens", RouteConfig(policy="least_tokens")),
    Case("round_robin, kept just full", RouteConfig(policy="round_robin")),
    Case("round_robin", RouteConfig(policy="round_robin", room_s=3600.0)),
)


def read_trace(path: Path, seed: int) -> list[Arrival]:
    dice = random.Random(seed)
    arrivals = []
    with path.open() as lines:
        for line in lines:
            r = json.loads(line)
            n = int(r["input_length"])
            at_s = r["timestamp"] / 1000 + GRID_S * dice.random()
            arrivals.append(Arrival(at_s, n, max(1, int(r["output_length"])), tuple(r["hash_ids"][: n // TRACE_BLOCK])))
    return sorted(arrivals)


def most_hits(arrivals: Sequence[Arrival]) -> int:
    """Prompt tokens that one replica which forgets nothing would find cached."""
    seen: set[int] = set()
    n_hit = 0
    for arrival in arrivals:
        n = next((i for i, name in enumerate(arrival.blocks) if name not in seen), len(arrival.blocks))
        n_hit += min(n * TRACE_BLOCK, arrival.n_prompt - 1)
        seen.update(arrival.blocks)
    return n_hit


class Gateway:
    """A line before the router, and the leases of what is on its way. Hears of its replicas' tasks."""

    def __init__(self, config: RouteConfig, shape: Shape, arrivals: Sequence[Arrival]) -> None:
        self.timeline = Timeline()
        self.replicas = {f"r{i}": ModelReplica(self.timeline, shape, self) for i in range(N_REPLICAS)}
        self.router = Router(make_policy(config), config, BreakerConfig(), random.Random(0))
        kv_tokens = shape.n_blocks * shape.block_size or AMPLE_TOKENS
        info = ReplicaInfo("same", 0, shape.max_num_seqs, shape.max_num_batched_tokens, kv_tokens, shape.block_size)
        for name in self.replicas:
            self.router.join(name, info, 0.0)
        self._arrivals = arrivals
        self._line: deque[int] = deque()
        self._jobs: dict[int, Job] = {}  # of those in line
        self._leases: dict[int, Lease] = {}
        self.ttft_s: dict[int, float] = {}
        self.n_hit = 0
        self.n_waited = 0

    def arrive(self, key: int) -> None:
        a = self._arrivals[key]
        # The router's blocks are smaller than the trace's: each of those becomes several, named by its place within.
        names = tuple(hash((name, i)) for name in a.blocks for i in range(TRACE_BLOCK // BLOCK))
        self._jobs[key] = Job(names, a.n_prompt, USUAL_OUTPUT)
        self._line.append(key)
        self._serve()
        self.n_waited += key not in self._leases

    def started(self, task: Task, n_cached: int) -> None:
        self.n_hit += n_cached
        self._leases[task.key].started(n_cached, self.timeline.now)

    def produced(self, task: Task, n: int) -> None:
        self._leases[task.key].produced(n, self.timeline.now)
        if task.key not in self.ttft_s:
            self.ttft_s[task.key] = self.timeline.now - self._arrivals[task.key].at_s
            self.timeline.after(0.0, self._serve)

    def ended(self, task: Task) -> None:
        self._leases.pop(task.key).close(Outcome.SUCCESS, self.timeline.now)
        self.timeline.after(0.0, self._serve)

    def _serve(self) -> None:
        """As the gateway's line does: one that finds no room does not stop those behind it that do."""
        for key in list(islice(self._line, LOOK_AHEAD)):
            lease = self.router.place(self._jobs[key], self.timeline.now)
            if lease is None:
                continue
            self._line.remove(key)
            del self._jobs[key]
            a = self._arrivals[key]
            self._leases[key] = lease
            self.replicas[lease.replica].submit(Task(key, a.n_prompt, a.n_output, blocks=a.blocks))


def replay(arrivals: Sequence[Arrival], config: RouteConfig, shape: Shape) -> Run:
    gateway = Gateway(config, shape, arrivals)
    computed: list[list[int]] = []
    for key, arrival in enumerate(arrivals):
        gateway.timeline.at(arrival.at_s, lambda key=key: gateway.arrive(key))  # type: ignore[misc]
    end_s = arrivals[-1].at_s
    for i in range(int(end_s / SPAN_S) + 1):
        gateway.timeline.at(i * SPAN_S, lambda: computed.append([r.n_computed for r in gateway.replicas.values()]))
    gateway.timeline.run()
    if len(gateway.ttft_s) != len(arrivals) or any(c.n_running or c.n_waiting for c in gateway.router.candidates(Job(), end_s)):
        raise RuntimeError("requests were lost on the way")
    uneven = []
    for before, after in pairwise(computed):
        spans = [b - a for a, b in zip(before, after, strict=True)]
        mean = sum(spans) / len(spans)
        uneven.append(max(abs(n / mean - 1) for n in spans))
    n_computed = sum(r.n_computed for r in gateway.replicas.values())
    work_s = n_computed * shape.prefill_s + sum(a.n_output for a in arrivals) * shape.decode_s
    ttft_s = [gateway.ttft_s[key] for key in range(len(arrivals))]
    return Run(ttft_s, gateway.n_hit, uneven, work_s / (N_REPLICAS * end_s), gateway.n_waited)


def row(run: Run, most: int) -> dict[str, float]:
    return {
        "hits of the most possible": round(run.n_hit / most, 4),
        "even: worst span": round(max(run.uneven), 4),
        "even: median span": round(harness.quantile(run.uneven, 0.5), 4),
        "TTFT mean, s": round(sum(run.ttft_s) / len(run.ttft_s), 3),
        "p50": round(harness.quantile(run.ttft_s, 0.5), 3),
        "p90": round(harness.quantile(run.ttft_s, 0.9), 3),
        "p99": round(harness.quantile(run.ttft_s, 0.99), 3),
        "work": round(run.work, 3),
        "waited": round(run.n_waited / len(run.ttft_s), 3),
    }


def verdicts(ample: dict[str, dict[str, float]]) -> list[harness.Line]:
    ours = ample["prefix_cost"]
    hits, even = ours["hits of the most possible"], ours["even: worst span"]
    lines = [
        harness.Line("prefix hits, of one replica that forgets nothing", f"{hits:.3f}", "0.90 or more", hits >= 0.9),
        harness.Line("computed tokens in five minutes, farthest from even", f"{even:.3f}", "0.15 at most", even <= 0.15),
    ]
    for name in ("round_robin", "round_robin, kept just full"):
        ratio = ours["TTFT mean, s"] / ample[name]["TTFT mean, s"]
        lines.append(harness.Line(f"mean TTFT over that of {name}", f"{ratio:.3f}", "0.70 at most", ratio <= 0.7))
    return lines


def table_of(rows: dict[str, dict[str, float]]) -> str:
    heads = list(next(iter(rows.values())))
    return harness.table(("policy", *heads), [(name, *cells.values()) for name, cells in rows.items()])


def main() -> int:
    parser = harness.parser(__doc__, "routing")
    parser.add_argument("--trace", type=Path, required=True, help="JSON lines with timestamp (ms), input_length, output_length, hash_ids")
    parser.add_argument("--requests", type=int, default=0, help="only so many of them, from the first (default: all)")
    parser.add_argument("--prefill-us", type=float, default=SHAPE.prefill_s * 1e6, help="a replica's time for a prompt token (default: 80)")
    parser.add_argument("--only", default="", help="one policy of the table, with ample memory; nothing is kept")
    parser.add_argument("--seed", type=int, default=1, help="of the times within the trace's grid")
    args = parser.parse_args()
    arrivals = read_trace(args.trace, args.seed)[: args.requests or None]
    shape = SHAPE._replace(prefill_s=args.prefill_us / 1e6)
    most = most_hits(arrivals)
    if args.only:
        case = next(case for case in CASES if case.name == args.only)
        sys.stdout.write(f"{row(replay(arrivals, case.config, shape), most)}\n")
        return 0
    tables: dict[str, dict[str, dict[str, float]]] = {}
    for memory, n_blocks in (("ample", 0), ("tight", TIGHT_BLOCKS)):
        tables[memory] = {}
        for case in CASES:
            tables[memory][case.name] = row(replay(arrivals, case.config, shape._replace(n_blocks=n_blocks)), most)
            sys.stderr.write(f"{memory}: {case.name}: {tables[memory][case.name]}\n")
    lines = verdicts(tables["ample"])
    text = f"Ample memory:\n\n{table_of(tables['ample'])}\n\nTight memory, {TIGHT_BLOCKS * TRACE_BLOCK:,} tokens a replica:\n\n"
    text += f"{table_of(tables['tight'])}\n\n{harness.verdicts(lines)}"
    figures: dict[str, Any] = {
        "replicas": N_REPLICAS,
        "shape": shape._asdict(),
        "requests": len(arrivals),
        "seed": args.seed,
        "hits that are possible, of prompt tokens": round(most / sum(a.n_prompt for a in arrivals), 4),
        "rows": tables,
    }
    return harness.finish(args.out, text, figures, lines)


if __name__ == "__main__":
    sys.exit(main())
