"""Whether Retry-After proves true: of clients that obey it, how many are let in at their next try.

    python bench/retry_after.py                       # a simulated overload, with the real line, limits and router
    python bench/retry_after.py --url http://127.0.0.1:8000 --rate 20 [--keys keys.txt]    # a real server

Simulated: tenants with and without limits ask for nearly twice what two replicas can do, all the time; who is refused comes back when
the header says (whole seconds) and the network took a little. The same without kept places, for comparison.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import harness

from camshaft.bench.model_replica import ModelReplica
from camshaft.bench.sse_client import Reply, Target, post
from camshaft.bench.virtual import Shape, Timeline
from camshaft.bench.virtual_gateway import Call, VirtualGateway
from camshaft.errors import CamshaftError
from camshaft.gateway.limit import LimitConfig, Limiter
from camshaft.gateway.line import Line, LineConfig
from camshaft.gateway.policy import RouteConfig

SHAPE = Shape(max_num_seqs=16, max_num_batched_tokens=512, step_s=0.012, prefill_s=0.0004, decode_s=0.002)
N_REPLICAS = 2
OVERLOAD = 1.8
LINE = LineConfig(max_requests=64, max_tokens=100_000, tenant_share=0.25, max_wait_s=600.0)
LIMITS = {
    "tokens": LimitConfig(tokens_per_minute=6_000),
    "requests": LimitConfig(tokens_per_minute=20_000, requests_per_minute=30),
    "slots": LimitConfig(concurrent_requests=4),
}
BAR = 0.95
MOST_TRIES = 6
NETWORK_S = 0.05
DEADLINE_S = 600.0  # for one answer of a real server


class Try(NamedTuple):
    """What came of the try after a refusal."""

    cause: str  # of the refusal before
    wait_s: float  # that it was told
    let_in: bool


class Tally:
    def __init__(self) -> None:
        self.first: list[Try] = []  # the next try of each that was refused at its first
        self.later: list[Try] = []
        self.n_asked = 0
        self.n_let_in = 0

    def add(self, n_tries: int, refusal: tuple[str, float] | None, *, let_in: bool) -> None:
        """A try after `n_tries` others, the last of which was refused."""
        self.n_let_in += let_in
        if refusal is None:
            self.n_asked += 1
        else:
            (self.first if n_tries == 1 else self.later).append(Try(*refusal, let_in))

    def share(self, cause: str = "") -> float:
        """Of those refused at first, who was let in at the next try."""
        tries = [t for t in self.first if not cause or t.cause == cause]
        return sum(t.let_in for t in tries) / max(1, len(tries))


# ------------------------------------------------------------------------------------------------------------ simulated


class Crowd:
    """Tenants that ask without pause: two heavy ones with a token limit, one with a limit of slots, and many others."""

    def __init__(self, seed: int, for_s: float, line: LineConfig) -> None:
        self.timeline = Timeline()
        grace_s = line.grace_s if line.max_promises else 0.0
        self.limiter = Limiter(LimitConfig(), LIMITS, grace_s=grace_s)
        self.gateway = VirtualGateway(self.timeline, Line(line), RouteConfig(), self.limiter)
        self.replicas = [ModelReplica(self.timeline, SHAPE, self.gateway) for _ in range(N_REPLICAS)]
        for i, replica in enumerate(self.replicas):
            self.gateway.join(f"r{i}", replica, SHAPE)
        self.tally = Tally()
        self._keeps = line.max_promises > 0
        self._dice = random.Random(seed)
        self._plan(for_s)

    def _plan(self, for_s: float) -> None:
        dice, at_s, n = self._dice, 0.0, 0
        tenants = ["tokens"] * 3 + ["requests"] * 2 + ["slots"] * 2 + [f"t{i}" for i in range(20)]
        mean_s = SHAPE.prefill_s * 120 + 60 * (SHAPE.step_s / SHAPE.max_num_seqs + SHAPE.decode_s)
        while at_s < for_s:
            at_s += dice.expovariate(OVERLOAD * N_REPLICAS / mean_s)
            n += 1
            n_prompt, n_output = 1 + int(dice.expovariate(1 / 120)), 1 + int(dice.expovariate(1 / 60))
            call = Call(dice.choice(tenants), min(n_prompt, 900), min(n_output, 400), n_output_most=400, promise=b"%d" % n)
            self.timeline.at(at_s, lambda call=call: self._ask(call, 0, None))  # type: ignore[misc]

    def _ask(self, call: Call, n_tries: int, refusal: tuple[str, float] | None) -> None:
        try:
            self.gateway.ask(call if self._keeps else call._replace(promise=b""))
        except CamshaftError as error:
            self.tally.add(n_tries, refusal, let_in=False)
            if error.retry_after_s is None or n_tries == MOST_TRIES:
                return
            told_s = max(1, math.ceil(error.retry_after_s))
            kind = f" ({call.tenant})" if call.tenant in LIMITS else ""
            again = (error.code + kind, float(told_s))
            self.timeline.after(told_s + self._dice.uniform(0.0, NETWORK_S), lambda: self._ask(call, n_tries + 1, again))
        else:
            self.tally.add(n_tries, refusal, let_in=True)


def simulate(seed: int, for_s: float, line: LineConfig) -> tuple[Tally, float]:
    """The tally, and output tokens a second until the last client came."""
    crowd = Crowd(seed, for_s, line)
    crowd.timeline.run(until=for_s)
    n_tokens = sum(record.n_produced for record in crowd.gateway.records)
    crowd.timeline.run(until=4 * for_s)  # those who were told to come back still do
    return crowd.tally, n_tokens / for_s


def simulated(for_s: float, seeds: Sequence[int]) -> tuple[str, dict[str, object], list[harness.Line]]:
    rows: list[tuple[object, ...]] = []
    kept: dict[str, object] = {}
    lines: list[harness.Line] = []
    plain = replace(LINE, max_promises=0)
    runs = [(f"places kept, seed {seed}", seed, LINE) for seed in seeds]
    for name, seed, line in (*runs, (f"times told, no place kept, seed {seeds[0]}", seeds[0], plain)):
        tally, tok_s = simulate(seed, for_s, line)
        causes = Counter(t.cause for t in tally.first)
        waits = [t.wait_s for t in tally.first]
        by_cause = ", ".join(f"{cause} {tally.share(cause):.1%} of {n}" for cause, n in sorted(causes.items()))
        told = f"{harness.quantile(waits, 0.5):.0f}"
        rows.append((name, tally.n_asked, len(tally.first), f"{tally.share():.1%}", by_cause, told, f"{tok_s:.0f}"))
        kept[name] = {"asked": tally.n_asked, "refused": len(tally.first), "share": tally.share(), "causes": causes, "tok_s": tok_s}
        if line is LINE:
            lines.append(
                harness.Line(f"let in at the next try, simulated, seed {seed}", f"{tally.share():.1%}", f"{BAR:.0%}", tally.share() >= BAR)
            )
    heads = ("", "clients", "refused at first", "let in at the next try", "by cause", "told, p50 s", "output tok/s")
    return harness.table(heads, rows), kept, lines


# ----------------------------------------------------------------------------------------------------------------- real


class Client:
    """Asks a real server, and comes back when it is told to."""

    def __init__(self, target: Target, keys: list[str], n_out: int, tally: Tally) -> None:
        self._target = target
        self._keys = keys
        self._n_out = n_out
        self._tally = tally

    async def ask(self, number: int) -> None:
        dice = random.Random(number)
        body = {"prompt": harness.random_ids(dice, dice.randrange(20, 200)), "max_tokens": self._n_out, "ignore_eos": True, "stream": True}
        target = self._target._replace(key=self._keys[number % len(self._keys)]) if self._keys else self._target
        refusal: tuple[str, float] | None = None
        for n_tries in range(MOST_TRIES):
            reply = await post(target, "/v1/completions", json.dumps(body).encode(), deadline_s=DEADLINE_S)
            self._tally.add(n_tries, refusal, let_in=reply.status == 200)
            told = retry_after(reply)
            if told is None:
                return
            refusal = told
            await asyncio.sleep(told[1])


def retry_after(reply: Reply) -> tuple[str, float] | None:
    """The error's code and the seconds told; None for an answer that is final."""
    if reply.status not in (429, 503) or "retry-after" not in reply.headers:
        return None
    code = json.loads(reply.body or b"{}").get("error", {}).get("code", "")
    return str(code), float(reply.headers["retry-after"])


async def crowd_at(target: Target, keys: list[str], rate: float, for_s: float, n_out: int) -> Tally:
    """Clients come at `rate` a second, open loop, for so long; then those that were told to come back still do."""
    tally, dice = Tally(), random.Random(5)
    client = Client(target, keys, n_out, tally)
    began, at_s, number = time.perf_counter(), 0.0, 0
    async with asyncio.TaskGroup() as tasks:
        while at_s < for_s:
            await asyncio.sleep(max(0.0, began + at_s - time.perf_counter()))
            tasks.create_task(client.ask(number))
            number += 1
            at_s += dice.expovariate(rate)
    return tally


def real(url: str, keys: Path | None, rate: float, for_s: float, n_out: int) -> tuple[str, dict[str, object], list[harness.Line]]:
    parts = urlsplit(url)
    names = [line.split()[0] for line in keys.read_text().splitlines() if line.strip() and not line.startswith("#")] if keys else []
    target = Target(parts.hostname or "127.0.0.1", parts.port or 80)
    tally: Tally = harness.run(crowd_at(target, names, rate, for_s, n_out), 10 * for_s + 600)
    causes = Counter(t.cause for t in tally.first)
    by_cause = ", ".join(f"{cause} {tally.share(cause):.1%} of {n}" for cause, n in sorted(causes.items()))
    heads = ("clients", "refused at first", "let in at the next try", "by cause")
    text = harness.table(heads, [(tally.n_asked, len(tally.first), f"{tally.share():.1%}", by_cause)])
    held = tally.share() >= BAR if tally.first else None
    lines = [harness.Line("let in at the next try, real", f"{tally.share():.1%}", f"{BAR:.0%}", held)]
    return text, {"asked": tally.n_asked, "refused": len(tally.first), "share": tally.share(), "causes": causes}, lines


def main() -> int:
    parser = harness.parser(__doc__, "retry_after")
    parser.add_argument("--seconds", type=float, default=300.0, help="that clients keep coming (default: 300)")
    parser.add_argument("--url", default="", help="a real server to overload; without it the overload is simulated")
    parser.add_argument("--keys", type=Path, default=None, help="file of API keys, one a line, taken in turn")
    parser.add_argument("--rate", type=float, default=20.0, help="clients a second against a real server (default: 20)")
    parser.add_argument("--tokens", type=int, default=32, help="output tokens of each, against a real server (default: 32)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 11, 23], help="of simulated crowds (default: 7 11 23)")
    args = parser.parse_args()
    if args.url:
        out = args.out.with_stem("retry_after_real") if args.out.stem == "retry_after" else args.out
        text, kept, lines = real(args.url, args.keys, args.rate, args.seconds, args.tokens)
    else:
        out = args.out
        text, kept, lines = simulated(args.seconds, args.seeds)
    return harness.finish(out, text + "\n\n" + harness.verdicts(lines), kept, lines)


if __name__ == "__main__":
    sys.exit(main())
