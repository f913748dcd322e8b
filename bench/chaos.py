"""Replicas that die, hang and crawl, a full disk, a restart, a file that changes all the time: and no client sees any of it.

    python bench/chaos.py [--seconds 180] [--kill-every 10] [--streams 32] [--model MODEL] [--only kill,stop,...]

Every client asks the same thing again and again: greedy, sampled, held to a schema, calling a tool, with log-probabilities, two answers
at once, text completions. What each was told by an undisturbed gateway is what it must be told in every other weather, to the letter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import resource
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import harness

from camshaft.bench.gateway_process import GatewayProcess, gateway
from camshaft.bench.processes import await_end
from camshaft.bench.sse_client import Reply, post
from camshaft.bench.transcript import Transcript, transcript

MODEL = "smol"
DEADLINE_S = 120.0
SETTLE_S = 3.0  # until streams are under way
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 30}, "days": {"type": "integer"}},
            "required": ["city", "days"],
            "additionalProperties": False,
        },
    },
}  # fmt: skip
TOPICS = ("the sea", "a train", "winter", "bread", "a river", "an old city", "music", "the moon")


class Asked(NamedTuple):
    kind: str
    path: str
    body: bytes


class Seen(NamedTuple):
    """What became of a call."""

    kind: str
    ok: bool
    why: str
    took_s: float
    moved: bool


def asked(number: int) -> Asked:
    """One of the clients' requests. All of them have a seed, so that each has one right answer."""
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        ("greedy", {"temperature": 0}),
        ("sampled", {"temperature": 0.9, "top_p": 0.95, "presence_penalty": 0.4}),
        (
            "schema",
            {
                "temperature": 0.8,
                "response_format": {"type": "json_schema", "json_schema": {"name": "p", "schema": SCHEMA, "strict": True}},
            },
        ),
        ("tool", {"temperature": 0.7, "tools": [TOOL], "tool_choice": "required"}),
        ("logprobs", {"temperature": 0.8, "logprobs": True, "top_logprobs": 3}),
        ("two", {"temperature": 0.9, "n": 2}),
        ("stop", {"temperature": 0.8, "stop": [" the", "\n\n"], "min_tokens": 12}),
        ("text", {"temperature": 0.8, "logprobs": 2}),
    )
    kind, fields = kinds[number % len(kinds)]
    topic = TOPICS[number // len(kinds) % len(TOPICS)]
    common = {
        "model": MODEL,
        "seed": 1000 + number,
        "max_tokens": 96,
        "stream": True,
        "stream_options": {"include_usage": True},
        "timeout": DEADLINE_S,
    }
    if kind == "text":
        return Asked(kind, "/v1/completions", json.dumps({**common, **fields, "prompt": f"A short story about {topic}:"}).encode())
    messages = [
        {"role": "system", "content": "You are a careful writer."},
        {"role": "user", "content": f"Tell me something about {topic}."},
    ]
    return Asked(kind, "/v1/chat/completions", json.dumps({**common, **fields, "messages": messages}).encode())


async def call(process: GatewayProcess, what: Asked, reply: Reply | None = None) -> tuple[Reply, Transcript]:
    reply = await post(process.target, what.path, what.body, deadline_s=DEADLINE_S + 40, into=reply)
    if reply.status != 200:
        return reply, Transcript(error=f"{reply.status}: {reply.body[:300].decode(errors='replace')}")
    return reply, transcript(event.data for event in reply.events)


class Clients:
    """Each repeats its request until it is told to stop, and compares."""

    def __init__(self, process: GatewayProcess, right: dict[int, Transcript], *, patient: bool = False) -> None:
        """`patient`: a gateway that is away is waited for, as clients of a service that restarts do."""
        self.seen: list[Seen] = []
        self._process = process
        self._right = right
        self._patient = patient
        self._over = False
        self._tasks = [asyncio.ensure_future(self._repeat(number)) for number in right]

    async def stop(self) -> list[Seen]:
        """Let each finish the call that it is in."""
        self._over = True
        await asyncio.gather(*self._tasks)
        return self.seen

    async def _repeat(self, number: int) -> None:
        what = asked(number)
        while not self._over:
            began, reply = time.monotonic(), Reply(0.0)
            try:
                _, told = await call(self._process, what, reply)
            except (OSError, ValueError, TimeoutError) as error:
                # Nobody took the call, or nobody has begun to answer it: every client of a service that restarts asks again.
                if self._patient and not reply.status:
                    await asyncio.sleep(0.1)
                    continue
                self.seen.append(Seen(what.kind, False, f"{type(error).__name__}: {error}", time.monotonic() - began, False))
                continue
            took_s = time.monotonic() - began
            if self._patient and reply.status == 503:
                await asyncio.sleep(0.1)
                continue
            why = told.error or ("" if told == self._right[number] else difference(told, self._right[number]))
            self.seen.append(Seen(what.kind, not why, why, took_s, int(reply.headers.get("x-camshaft-tries", "1")) > 1))


def difference(told: Transcript, right: Transcript) -> str:
    for index, choice in right.choices.items():
        other = told.choices.get(index)
        for field in choice.__struct_fields__:
            if other is None or getattr(other, field) != getattr(choice, field):
                return f"choice {index}: {field} is {getattr(other, field, None)!r:.200}, not {getattr(choice, field)!r:.200}"
    return f"usage {told.usage}, not {right.usage}; over {told.n_done} times"


async def undisturbed(process: GatewayProcess, n: int) -> dict[int, Transcript]:
    """The right answers, asked for one after the other, twice, which must agree."""
    right: dict[int, Transcript] = {}
    for number in range(n):
        answers = [(await call(process, asked(number)))[1] for _ in range(2)]
        if not answers[0].whole or answers[0] != answers[1]:
            raise SystemExit(f"{asked(number).kind}: the undisturbed gateway gave {answers[0]} and then {answers[1]}")
        right[number] = answers[0]
    return right


# ------------------------------------------------------------------------------------------------------------- weathers


async def kill(process: GatewayProcess, seconds: float, every_s: float) -> str:
    n = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(every_s)
        workers = process.workers()
        if workers:
            os.kill(random.choice(workers), signal.SIGKILL)
            n += 1
    return f"{n} kills"


async def stop_one(process: GatewayProcess, seconds: float, _: float) -> str:
    """SIGSTOP: it neither dies nor answers."""
    await asyncio.sleep(SETTLE_S)
    victim = random.choice(process.workers())
    os.kill(victim, signal.SIGSTOP)
    await asyncio.sleep(seconds)
    left = await asyncio.to_thread(await_end, [victim], 30.0)
    return "the stopped one was replaced" if not left else "THE STOPPED ONE IS STILL THERE"


async def slow_one(process: GatewayProcess, seconds: float, _: float) -> str:
    """Nine tenths of its time are taken away."""
    await asyncio.sleep(SETTLE_S)
    victim = random.choice(process.workers())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGSTOP)
            await asyncio.sleep(0.27)
            os.kill(victim, signal.SIGCONT)
        await asyncio.sleep(0.03)
    return "one ran a tenth of the time"


async def full_disk(process: GatewayProcess, seconds: float, _: float) -> str:
    """No file of the gateway may grow: what a full disk says to it, without filling anybody's disk."""
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
    await asyncio.sleep(seconds / 2)
    for weight in (50, 60):
        process.ask("POST", "/v1/weights", {"model": MODEL, "weights": {"v1": weight}})
    await asyncio.sleep(seconds / 2)
    trouble = process.ask("GET", "/v1/fleet")["state"]
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
    for _ in range(100):
        if not process.ask("GET", "/v1/fleet")["state"]:
            break
        await asyncio.sleep(0.5)
    healed = not process.ask("GET", "/v1/fleet")["state"]
    kept = sum(
        event["kind"] == "admin.weights" or event["kind"].endswith("weights") for event in process.ask("GET", "/v1/events")["events"]
    )
    return f"said: {trouble or 'NOTHING'}; {'writes again' if healed else 'STILL DOES NOT WRITE'}; {kept} changes in the log"


async def reload_often(process: GatewayProcess, seconds: float, _: float) -> str:
    """A hundred reloads: weights, numbers of replicas, bounds; every tenth is bad and must change nothing."""
    text = process.path.read_text()
    n_bad = 0
    for i in range(100):
        changed = text.replace("replicas = 3", f"replicas = {2 + i % 2}").replace("max_requests = 2000", f"max_requests = {2000 + i // 20}")
        process.path.write_text(changed + ("\nnonsense = 1\n[" if i % 10 == 9 else ""))
        try:
            process.ask("POST", "/v1/reload", {})
        except OSError as error:
            n_bad += getattr(error, "code", 0) == 400
        await asyncio.sleep(seconds / 100)
    process.path.write_text(text)
    process.ask("POST", "/v1/reload", {})
    return f"100 reloads, {n_bad} of 10 bad ones refused"


async def restart(process: GatewayProcess, seconds: float, _: float) -> str:
    """The gateway itself, in the way of an operator, and then killed."""
    await asyncio.sleep(SETTLE_S)
    workers = process.workers()
    await asyncio.to_thread(process.stop)
    left = await asyncio.to_thread(await_end, workers, 10.0)
    await asyncio.to_thread(process.start)
    await asyncio.sleep(seconds / 2)
    return "everything ended with it" if not left else f"LEFT BEHIND: {left}"


Weather = Callable[[GatewayProcess, float, float], Awaitable[str]]
WEATHERS: dict[str, tuple[Weather, float]] = {  # with its share of --seconds
    "kill": (kill, 1.0),
    "stop": (stop_one, 0.2),
    "slow": (slow_one, 0.2),
    "disk": (full_disk, 0.1),
    "reload": (reload_often, 0.3),
    "restart": (restart, 0.1),
}


async def through(process: GatewayProcess, name: str, args: argparse.Namespace, right: dict[int, Transcript]) -> dict[str, Any]:
    work, share = WEATHERS[name]
    clients = Clients(process, right, patient=name == "restart")
    moves = n_moves(process)
    said = await work(process, args.seconds * share, args.kill_every)
    seen = await clients.stop()
    bad = [s for s in seen if not s.ok]
    rest = await at_rest(process)
    moved = "" if name == "restart" else f"{n_moves(process) - moves}"
    return {
        "weather": name,
        "calls": len(seen),
        "wrong": len(bad),
        "streams moved": moved,
        "longest, s": round(max((s.took_s for s in seen), default=0.0), 1),
        "counters after": rest,
        "what happened": said,
        "why": [f"{s.kind}: {s.why}" for s in bad[:5]],
        "kinds": dict(Counter(s.kind for s in seen)),
    }


def n_moves(process: GatewayProcess) -> int:
    """Streams that changed their replica, by the gateway's own count."""
    found = [
        line for line in harness.fetch(process.target, "/metrics").splitlines() if line.startswith("camshaft_gateway_streams_moved_total{")
    ]
    return sum(int(float(line.rpartition(" ")[2])) for line in found if 'moved="yes"' in line)


async def at_rest(process: GatewayProcess) -> str:
    """Whether every counter is back at zero."""
    for _ in range(100):
        status = process.ask("GET", "/v1/fleet")
        versions = [version for model in status["models"] for version in model["versions"]]
        busy = sum(v["queued"] for v in versions) + sum(r["running"] + r["tokens_in_flight"] for v in versions for r in v["replicas"])
        if not busy:
            return "zero"
        await asyncio.sleep(0.1)
    return f"NOT ZERO: {busy}"


def file_of(model: str) -> str:
    return f"""
[models.{MODEL}.versions.v1]
source = "{model}"
replicas = 3
settings = {{ threads = 1, max_model_len = 1024, max_num_seqs = 16, max_num_batched_tokens = 128 }}
life = {{ stall_s = 5.0, backoff_first_s = 0.1, crash_row = 1000, crash_most = 1000 }}
line = {{ max_requests = 2000 }}
"""


async def main_async(args: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, gateway(Path(folder), file_of(args.model), 3) as process:
        right = await undisturbed(process, args.streams)
        for name in args.only:
            if name in WEATHERS:
                rows.append(await through(process, name, args, right))
                print({k: v for k, v in rows[-1].items() if k != "kinds"}, flush=True)
                process.await_ready(3)
        if "orphans" in args.only:
            rows.append(orphans(process))
            print(rows[-1], flush=True)
    return rows


def orphans(process: GatewayProcess) -> dict[str, Any]:
    """kill -9 of the gateway."""
    workers = process.workers()
    process.kill()
    left = await_end(workers, 10.0)
    return {
        "weather": "orphans",
        "what happened": f"{len(workers)} replicas, {len(left)} left 10 s after kill -9 of the gateway",
        "wrong": len(left),
    }


HEADS = ("weather", "calls", "wrong", "streams moved", "longest, s", "counters after", "what happened")


def main() -> int:
    parser = harness.parser(__doc__, "chaos")
    parser.add_argument("--seconds", type=float, default=180.0, help="of killing; other weathers take a share of it")
    parser.add_argument("--kill-every", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[*WEATHERS, "orphans"], help="weathers, with commas")
    args = parser.parse_args()
    args.model = args.model or "smollm2-135m"
    random.seed(1)
    rows = harness.run(main_async(args), 3600.0)
    lines = [harness.Line(row["weather"], f"{row['wrong']} wrong of {row.get('calls', '')}", "0", row["wrong"] == 0) for row in rows]
    text = harness.table(HEADS, [[row.get(head, "") for head in HEADS] for row in rows])
    return harness.finish(args.out, text, {"seconds": args.seconds, "streams": args.streams, "rows": rows}, lines)


if __name__ == "__main__":
    raise SystemExit(main())
