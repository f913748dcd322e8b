"""Fair shares and classes in virtual time, with the real line, router, scheduler and KV manager.

    python bench/fairness.py --trace arena_multitenant.jsonl

The trace (JSON lines with arrival_s, tenant, prompt_tokens, output_tokens) is played to one replica that can serve about half of it: once
first come first served, once with fair shares. Then realtime users of its lengths are served beside a batch tenant with 10,000 requests in
line, and without it, for ten minutes with each of five seeds. Ten minutes have about 500 users, of whom the fifth worst is the 99th
percentile, a matter of who got the last place in one burst: it is taken over the users of all seeds, and the worst seed stands beside it.
"""

from __future__ import annotations

import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import harness

from camshaft.bench.engine_replica import EngineReplica
from camshaft.bench.virtual import Shape, Timeline
from camshaft.bench.virtual_gateway import Call, VirtualGateway
from camshaft.gateway.fair import W_IN, W_OUT
from camshaft.gateway.line import Line, LineConfig
from camshaft.gateway.policy import RouteConfig

# A laptop's replica: 16 streams at 364 tok/s; KV for 8,192 tokens.
SHAPE = Shape(max_num_seqs=16, max_num_batched_tokens=512, step_s=0.012, prefill_s=0.0004, decode_s=0.002, block_size=32, n_blocks=257)
OPEN = LineConfig(max_requests=1_000_000, max_tokens=1_000_000_000, tenant_share=1.0, max_wait_s=86_400, refuse_unmeetable=False)
SAMPLE_S = 0.25
N_BATCH = 10_000
AGE_S = 600.0  # as behind a gateway
AMPLE = SHAPE._replace(n_blocks=0)  # beside batch: KV for all its streams, so that slots and steps are what is fought for


class Arrival(NamedTuple):
    at_s: float
    call: Call


def read_trace(path: Path) -> list[Arrival]:
    with path.open() as lines:
        records = [json.loads(line) for line in lines]
    return [Arrival(r["arrival_s"], Call(r["tenant"], max(1, r["prompt_tokens"]), max(1, r["output_tokens"]))) for r in records]


class Rig:
    """One gateway over one replica."""

    def __init__(self, shape: Shape = SHAPE, *, fair: bool = True) -> None:
        self.timeline = Timeline()
        self.gateway = VirtualGateway(self.timeline, Line(OPEN), RouteConfig(), fair=fair)
        self.replica = EngineReplica(self.timeline, shape, self.gateway, AGE_S)
        self.gateway.join("replica", self.replica, shape)

    def play(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self.timeline.at(arrival.at_s, partial(self._ask, arrival.call))

    def _ask(self, call: Call) -> None:
        self.gateway.ask(call)


# ------------------------------------------------------------------------------------------------------------------ gap


class Gap:
    """The greatest difference in service between two tenants over any stretch in which both had somebody in line throughout."""

    def __init__(self) -> None:
        self.worst = 0.0
        self._stretch: dict[tuple[str, str], tuple[float, float]] = {}  # least and greatest difference since both are in line

    def look(self, service: Mapping[str, float], waiting: Iterable[str]) -> None:
        fresh: dict[tuple[str, str], tuple[float, float]] = {}
        for pair in combinations(sorted(waiting), 2):
            d = service[pair[0]] - service[pair[1]]
            least, most = self._stretch.get(pair, (d, d))
            fresh[pair] = (min(least, d), max(most, d))
            self.worst = max(self.worst, fresh[pair][1] - fresh[pair][0])
        self._stretch = fresh


class Played(NamedTuple):
    gap: float
    waits: dict[str, list[float]]  # by tenant, seconds in line
    end_s: float
    preempted: int


def play_trace(arrivals: Sequence[Arrival], *, fair: bool) -> Played:
    rig = Rig(fair=fair)
    rig.play(arrivals)
    gap, gateway, timeline = Gap(), rig.gateway, rig.timeline

    def sample() -> None:
        gap.look(gateway.service, gateway.waiting)
        if len(gateway.records) < len(arrivals) or gateway.waiting:
            timeline.after(SAMPLE_S, sample)

    timeline.after(SAMPLE_S, sample)
    timeline.run()
    waits: dict[str, list[float]] = defaultdict(list)
    for record in gateway.records:
        waits[record.call.tenant].append(record.placed_at - record.arrived_at)
    return Played(gap.worst, waits, max(r.ended_at for r in gateway.records), rig.replica.n_preempted)


def light_ones(arrivals: Sequence[Arrival]) -> set[str]:
    """Tenants that ask for less than an even share."""
    work: dict[str, float] = defaultdict(float)
    for _, call in arrivals:
        work[call.tenant] += W_IN * call.n_prompt + W_OUT * call.n_output
    even = sum(work.values()) / len(work)
    return {tenant for tenant, w in work.items() if w < even}


# ---------------------------------------------------------------------------------------------------------------- batch


class Beside(NamedTuple):
    """Realtime users, with or without a batch tenant."""

    ttfts: list[float]  # seconds to the first token
    n_done: int  # requests of batch that ended
    batch_per_s: float  # its output tokens


def realtime(arrivals: Sequence[Arrival], *, n_batch: int, load: float, for_s: float, seed: int) -> Beside:
    """Users at `load` of what the replica can do."""
    dice = random.Random(seed)
    rig = Rig(AMPLE)
    cost_s = sum(
        SHAPE.prefill_s * a.call.n_prompt + a.call.n_output * (SHAPE.step_s / SHAPE.max_num_seqs + SHAPE.decode_s) for a in arrivals
    )
    gap_s = cost_s / len(arrivals) / load
    calls = [a.call for a in arrivals]
    users: list[Arrival] = []
    at_s = 1.0
    while at_s < for_s:
        users.append(Arrival(at_s, dice.choice(calls)))
        at_s += dice.expovariate(1 / gap_s)
    rig.play([Arrival(0.0, dice.choice(calls)._replace(tenant="batch", rank=1)) for _ in range(n_batch)])
    rig.play(users)
    end_s = for_s + 60.0
    rig.timeline.run(until=end_s)
    ttfts = [r.first_at - r.arrived_at for r in rig.gateway.records if r.call.rank == 0 and r.first_at >= 0]
    batch = [r for r in rig.gateway.records if r.call.rank == 1]
    return Beside(ttfts, sum(r.ended_at >= 0 for r in batch), sum(r.n_produced for r in batch) / end_s)


# ----------------------------------------------------------------------------------------------------------------- main


def main() -> int:
    parser = harness.parser(__doc__, "fairness")
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="of realtime users beside the batch tenant (default: 600)")
    parser.add_argument("--load", type=float, nargs="+", default=[0.3, 0.5, 0.6, 0.7], help="shares of the replica that they use")
    parser.add_argument("--seeds", type=int, nargs="+", default=[11, 1, 2, 3, 4], help="one run for each (default: 11 1 2 3 4)")
    args = parser.parse_args()
    arrivals = read_trace(args.trace)
    l_in = max(a.call.n_prompt for a in arrivals)
    m = (SHAPE.n_blocks - 1) * SHAPE.block_size
    bound = 2 * max(W_IN * l_in, W_OUT * m)
    light = light_ones(arrivals)
    rows, figures = [], {}
    p90 = {}
    gaps = {}
    for name, fair in (("first come first served", False), ("fair shares", True)):
        played = play_trace(arrivals, fair=fair)
        waits = [w for tenant in light for w in played.waits[tenant]]
        heavy = [w for tenant, its in played.waits.items() if tenant not in light for w in its]
        p90[name], gaps[name] = harness.quantile(waits, 0.9), played.gap
        row = (f"{p90[name]:.2f}", f"{harness.quantile(heavy, 0.9):.1f}", f"{played.gap:,.0f}", f"{played.end_s:.0f}")
        rows.append((name, *row))
        figures[name] = {"light_p90_s": p90[name], "gap": played.gap, "end_s": played.end_s, "preempted": played.preempted}
    text = harness.table(("", "light tenants' p90 wait, s", "heavy tenants', s", "worst service gap", "all done after, s"), rows)
    lines = [
        harness.Line("service gap of backlogged tenants", f"{gaps['fair shares']:,.0f}", f"{bound:,.0f}", gaps["fair shares"] <= bound),
        *_light_line(p90),
    ]
    batch_rows, batch_lines, batch = of_batch(arrivals, args.load, args.seconds, args.seeds)
    note = f"{len(light)} of {len({a.call.tenant for a in arrivals})} tenants ask for less than an even share. "
    note += f"The bound is 2 max(w_in L_in, w_out M) with L_in = {l_in}, M = {m} tokens of KV, w_in = {W_IN:g}, w_out = {W_OUT:g}."
    beside = f"beside {N_BATCH:,} of batch, p50"
    heads = ("realtime load", "users", "p50 TTFT alone, ms", "p99", beside, "p99", "moved, full steps", "in the worst seed", "batch, tok/s")
    text = "\n\n".join((text, note, harness.table(heads, batch_rows), harness.verdicts(lines + batch_lines)))
    kept: dict[str, Any] = {"shape": SHAPE._asdict(), "l_in": l_in, "m": m, "bound": bound, "trace": figures, "batch": batch}
    return harness.finish(args.out, text, kept, lines + batch_lines)


def _light_line(p90: dict[str, float]) -> list[harness.Line]:
    factor = p90["first come first served"] / max(1e-3, p90["fair shares"])
    return [harness.Line("light tenants' p90 wait against first come", f"{factor:.1f} x less", "3 x", factor >= 3)]


def of_batch(
    arrivals: Sequence[Arrival], loads: Sequence[float], for_s: float, seeds: Sequence[int]
) -> tuple[list[Sequence[object]], list[harness.Line], list[Any]]:
    rows: list[Sequence[object]] = []
    lines, kept = [], []
    full_s = SHAPE.full_step_s()
    for load in loads:
        alone = [realtime(arrivals, n_batch=0, load=load, for_s=for_s, seed=seed) for seed in seeds]
        beside = [realtime(arrivals, n_batch=N_BATCH, load=load, for_s=for_s, seed=seed) for seed in seeds]
        by_seed = [_moved(a.ttfts, b.ttfts) for a, b in zip(alone, beside, strict=True)]
        pooled = [[ttft for run in runs for ttft in run.ttfts] for runs in (alone, beside)]
        moved = _moved(*pooled)
        cells = [f"{1000 * harness.quantile(ttfts, q):.0f}" for ttfts in pooled for q in (0.5, 0.99)]
        per_s = sum(run.batch_per_s for run in beside) / len(seeds)
        rows.append((f"{load:.0%}", len(pooled[1]), *cells, f"{moved:.2f}", f"{max(by_seed):.2f}", f"{per_s:.0f}"))
        what = f"realtime p99 TTFT moved by a batch tenant, load {load:.0%}"
        all_there = all(len(a.ttfts) == len(b.ttfts) for a, b in zip(alone, beside, strict=True))
        lines.append(harness.Line(what, f"{moved:.2f} full-budget steps", "2", moved <= 2 and all_there))
        p99 = [harness.quantile(ttfts, 0.99) for ttfts in pooled]
        figures = {"load": load, "alone_p99_s": p99[0], "beside_p99_s": p99[1], "full_step_s": full_s, "moved": moved}
        done = [run.n_done for run in beside]
        kept.append(
            {**figures, "moved_by_seed": dict(zip(map(str, seeds), by_seed, strict=True)), "batch_done": done, "batch_tok_s": per_s}
        )
    return rows, lines, kept


def _moved(alone: Sequence[float], beside: Sequence[float]) -> float:
    """Full-budget steps between the p99s."""
    return (harness.quantile(beside, 0.99) - harness.quantile(alone, 0.99)) / SHAPE.full_step_s()


if __name__ == "__main__":
    sys.exit(main())
