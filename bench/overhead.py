"""What a gateway costs: ours and LiteLLM's proxy, each before the same fake server of OpenAI's API, on this machine in interleaved rounds.

    python bench/overhead.py [--rounds 3] [--seconds 8] [--workers 1] [--work DIR]

The fake server (camshaft.bench.fake_openai), the proxies and the client (beside/load.py) are processes of their own and share the
machine's cores. LiteLLM gets an environment under --work at the first use and runs with its defaults in production mode; --workers
gives it more processes. Where it cannot be installed, the report says why and has our side alone.

- Saturation: 64 connections, each asking again as soon as it was answered. Short answers are 16 tokens, not streamed. Streams are 128
  tokens, one every 2 ms, which is more than any of them passes on.
- Added time: a fixed rate of short answers, from when each was due; through a proxy less the same rate straight to the fake server. At half
  of each one's own saturation, and at half of LiteLLM's for both.
- Idle: 500 streams that had their first token and get nothing for a while; the share of a core that the proxy takes meanwhile, less what
  it takes without them.

A figure is the median over the rounds. Processor time per request is what a figure means on another machine.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import harness
from beside import load, proxies
from beside.proxies import Proxy
from beside.shell import AbsentError, last_json

WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "camshaft" / "peers"
CONNECTIONS = 64
IDLE_STREAMS = 500
IDLE_S = 20.0
HELD_S = 120.0  # seconds between an idle stream's first token and its second
MOST_OPEN = 2000  # requests at once, at a fixed rate
OURS, THEIRS, DIRECT = "camshaft", "litellm", "direct"

Found = dict[str, float]


def short() -> str:
    return json.dumps({"model": "fake", "messages": [{"role": "user", "content": "Say something short."}], "max_tokens": 16})


def streamed(play: Mapping[str, float]) -> str:
    """The fake server reads its pace from the message."""
    asked = {"model": "fake", "stream": True, "messages": [{"role": "user", "content": json.dumps(play)}], "max_tokens": 1000}
    return json.dumps(asked)


def measured(proxy: Proxy, kind: str, body: str, connections: int, seconds: float, rate: float = 0.0) -> Found:
    """One measurement by a client of its own. Raises AbsentError."""
    task = {"host": "127.0.0.1", "port": proxy.port, "kind": kind, "body": body, "connections": connections, "seconds": seconds}
    given = json.dumps(task | {"rate": rate, "pids": proxy.pids()})
    command, env = [sys.executable, "-P", load.__file__], harness.environment()
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=load.LIMIT_S, env=env)
    if done.returncode:
        raise AbsentError(f"{proxy.name}, {kind}: {done.stderr.strip().splitlines()[-1][:300]}")
    return dict(last_json(done.stdout))


class Rounds:
    """All measurements of one kind, by side; and why some are not there."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, list[Found]]] = {}
        self.absent: set[str] = set()

    def run(self, what: str, sides: Sequence[Proxy], ask: Mapping[str, Any]) -> None:
        """Measure each side once more."""
        for proxy in sides:
            try:
                figures = measured(proxy, **ask)
            except (AbsentError, subprocess.TimeoutExpired) as error:
                self.absent.add(f"{what}: {error}")
                continue
            self.found.setdefault(what, {}).setdefault(proxy.name, []).append(figures)
            sys.stderr.write(f"{what}, {proxy.name}: {json.dumps({k: round(v, 3) for k, v in figures.items()})}\n")

    def median(self, what: str, side: str, figure: str) -> float | None:
        values = [each[figure] for each in self.found.get(what, {}).get(side, []) if figure in each]
        return statistics.median(values) if values else None

    def cost_us(self, what: str, side: str, per: str) -> float | None:
        """Processor time of a proxy for each request or token, in microseconds."""
        values = [each["share"] / each[per] * 1e6 for each in self.found.get(what, {}).get(side, []) if each.get(per)]
        return statistics.median(values) if values else None


def saturate(rounds: Rounds, sides: Sequence[Proxy], args: argparse.Namespace) -> None:
    body = streamed({"n": 128, "token_s": 0.002})
    for _ in range(args.rounds):
        rounds.run("short", sides, {"kind": "closed", "body": short(), "connections": CONNECTIONS, "seconds": args.seconds})
        rounds.run("streams", sides, {"kind": "closed", "body": body, "connections": CONNECTIONS, "seconds": args.seconds})


def delay(rounds: Rounds, sides: Sequence[Proxy], args: argparse.Namespace) -> None:
    """At half of each one's saturation, the direct way at the same rates; then all of them at half of the slowest's."""
    halves = {p.name: rate / 2 for p in sides if p.name != DIRECT and (rate := rounds.median("short", p.name, "rate"))}
    if not halves:
        return
    direct = [p for p in sides if p.name == DIRECT]
    for _ in range(args.rounds):
        for proxy in sides:
            if proxy.name in halves:
                ask = {"kind": "rate", "body": short(), "connections": MOST_OPEN, "seconds": args.seconds, "rate": halves[proxy.name]}
                rounds.run(f"half of {proxy.name}", [*direct, proxy], ask)
        ask = {"kind": "rate", "body": short(), "connections": MOST_OPEN, "seconds": args.seconds, "rate": min(halves.values())}
        rounds.run("equal", sides, ask)


def idle(rounds: Rounds, sides: Sequence[Proxy]) -> None:
    body = streamed({"n": 3, "token_s": HELD_S})
    proxied = [p for p in sides if p.name != DIRECT]
    rounds.run("empty", proxied, {"kind": "idle", "body": body, "connections": 0, "seconds": IDLE_S})
    rounds.run("idle", proxied, {"kind": "idle", "body": body, "connections": IDLE_STREAMS, "seconds": IDLE_S})


# ------------------------------------------------------------------------------------------------------------------ report


def added(rounds: Rounds, what: str, side: str, figure: str) -> float | None:
    through, direct = rounds.median(what, side, figure), rounds.median(what, DIRECT, figure)
    return None if through is None or direct is None else through - direct


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def idle_share(rounds: Rounds, side: str) -> float | None:
    """What the streams take beyond what the proxy takes without them."""
    streams, empty = rounds.median("idle", side, "share"), rounds.median("empty", side, "share")
    return None if streams is None or empty is None else streams - empty


def table(rounds: Rounds, sides: Sequence[str]) -> str:
    rows: list[list[object]] = []

    def row(name: str, values: Sequence[float | None], form: str) -> None:
        rows.append([name, *(shown(value, form) for value in values)])

    row("short answers, requests/s", [rounds.median("short", s, "rate") for s in sides], ",.0f")
    row("  processor time per request, us", [rounds.cost_us("short", s, "rate") for s in sides], ",.0f")
    row("streams, tokens/s", [rounds.median("streams", s, "tokens_s") for s in sides], ",.0f")
    row("  processor time per token, us", [rounds.cost_us("streams", s, "tokens_s") for s in sides], ",.1f")
    for figure, name in (("p50_ms", "p50"), ("p99_ms", "p99")):
        row(f"added {name} at half of its own saturation, ms", [added(rounds, f"half of {s}", s, figure) for s in sides], ".2f")
        row(f"added {name} at equal load, ms", [added(rounds, "equal", s, figure) for s in sides], ".2f")
    row("nobody there, share of a core", [rounds.median("empty", s, "share") for s in sides], ".4f")
    row(f"{IDLE_STREAMS} idle streams, share of a core beyond that", [idle_share(rounds, s) for s in sides], ".4f")
    return harness.table(("", *sides), rows)


def bars(rounds: Rounds) -> list[harness.Line]:
    found = []
    for name, what, figure in (("short answers", "short", "rate"), ("streamed tokens", "streams", "tokens_s")):
        ours, theirs = rounds.median(what, OURS, figure), rounds.median(what, THEIRS, figure)
        ratio = ours / theirs if ours and theirs else None
        found.append(harness.Line(f"{name}, times LiteLLM's", shown(ratio, ".1f"), "at least 3", None if ratio is None else ratio >= 3))
    half = added(rounds, f"half of {OURS}", OURS, "p50_ms")
    found.append(harness.Line("added p50 at half load, ms", shown(half, ".2f"), "under 2", None if half is None else half < 2))
    share = idle_share(rounds, OURS)
    cost = "under 0.01 of a core"
    found.append(harness.Line(f"{IDLE_STREAMS} idle streams", shown(share, ".4f"), cost, None if share is None else share < 0.01))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="(default: 3)")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement (default: 8)")
    parser.add_argument("--workers", type=int, default=1, help="processes of LiteLLM (default: 1, as it has it)")
    parser.add_argument("--without-litellm", action="store_true", help="measure our side alone")
    parser.add_argument("--work", type=Path, default=WORK, help=f"where LiteLLM is kept (default: {WORK})")
    parser.add_argument("--out", type=Path, default=harness.RESULTS / "overhead.json", help="(default: bench/results/overhead.json)")
    args = parser.parse_args(argv)
    rounds, versions = Rounds(), {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="camshaft-overhead-")))
        direct = stack.enter_context(proxies.fake(folder))
        sides = [direct, stack.enter_context(proxies.camshaft(direct.port, folder))]
        try:
            if args.without_litellm:
                raise AbsentError("LiteLLM: not asked for")
            sides.append(stack.enter_context(proxies.litellm(args.work, args.workers)(direct.port, folder)))
            versions = {THEIRS: proxies.litellm_version(args.work), "workers": args.workers}
        except AbsentError as error:
            rounds.absent.add(str(error))
        saturate(rounds, sides, args)
        delay(rounds, sides, args)
        idle(rounds, sides)
        memory = {p.name: p.resident_mib() for p in sides}
    lines = bars(rounds)
    absent = ["", "Not measured, or not in every round:", "", *(f"- {why}" for why in sorted(rounds.absent))] if rounds.absent else []
    text = "\n".join([table(rounds, [p.name for p in sides]), "", harness.verdicts(lines), *absent])
    return harness.finish(args.out, text, {"versions": versions, "resident_mib": memory, "rounds": rounds.found}, lines)


if __name__ == "__main__":
    sys.exit(main())
