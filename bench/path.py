"""Where the time goes that is not the model's: one stream, and many, over HTTP, beside the engine alone.

    python bench/path.py [--streams 32] [--prompt 128] [--tokens 128] [--rounds 5]

A server and an engine without one, each in a process of its own, take turns: the same prompts, the same answers. The client keeps bytes
and does nothing else while answers come; its processor time is printed. What the server's threads took is read from the system, what the
engine thread did from its own counters.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import harness

from camshaft.bench.processes import on_core_s_by_thread
from camshaft.engine.llm import LLM
from camshaft.types import SamplingParams, TokenPrompt

LIMIT_S = 900.0
MAX_SEQS = 64
N_FIRST = 20  # requests for the time to first token
FIRST_PROMPT = 32
PAUSE_S = 0.05  # between them, so that the server is idle
PARTS = {"plan": "plan", "bind": "to arrays and back", "compute": "the model", "accept": "accept, detokenise, hand over"}
THREADS = {
    "engine": "engine thread",
    "workers": "compute workers",
    "loop": "event loop (HTTP, JSON, SSE)",
    "encode": "encoding threads",
    "edge": "parsing threads",
}
PART = re.compile(r'^camshaft_step_seconds_total\{.*part="(\w+)".*\} (\S+)$', re.MULTILINE)
STEPS = re.compile(r"^camshaft_iteration_tokens_total_count\{.*\} (\S+)$", re.MULTILINE)
ONE_SHARE, MANY_SHARE, OVER_HTTP, FIRST_MS = 0.05, 0.10, 0.93, 4.0
STEP_US, ROW_US = 100, 10


class Spent(NamedTuple):
    """Seconds, of one process between two looks at it, or since it began."""

    threads: dict[str, float]  # processor time by name of thread
    parts: dict[str, float]  # of the engine thread, by its own clock
    steps: float

    def since(self, before: Spent) -> Spent:
        threads = {name: taken - before.threads.get(name, 0.0) for name, taken in self.threads.items()}
        return Spent(threads, {part: self.parts[part] - before.parts[part] for part in PARTS}, self.steps - before.steps)


class Run(NamedTuple):
    """One measured stretch, client and server."""

    seconds: float
    client_s: float  # processor time
    spent: Spent

    @property
    def python_us(self) -> float:
        """What the engine thread does for a step beside the model, microseconds."""
        parts = self.spent.parts
        return 1e6 * (parts["plan"] + parts["bind"] + parts["accept"]) / max(1.0, self.spent.steps)

    @property
    def by_owner(self) -> dict[str, float]:
        """Processor seconds of the server: the model's (workers, and the engine thread while it computes) and everybody else's."""
        threads, parts = self.spent.threads, self.spent.parts
        python = min(threads.get("engine", 0.0), parts["plan"] + parts["bind"] + parts["accept"])
        known = {"engine thread, Python": python, "event loop": threads.get("loop", 0.0)}
        others = sum(threads.get(name, 0.0) for name in ("encode", "edge"))
        return {"model": sum(threads.values()) - sum(known.values()) - others, **known, "other threads": others}


def parts_of(server: harness.Server) -> tuple[dict[str, float], float]:
    """The engine thread's seconds by part of a step, and the number of steps."""
    text = harness.fetch(server.target, "/metrics")
    return {part: float(seconds) for part, seconds in PART.findall(text)}, sum(float(count) for count in STEPS.findall(text))


def before(server: harness.Server) -> Spent:
    parts, steps = parts_of(server)
    return Spent(thread_times(server.pid), parts, steps)


def after(server: harness.Server) -> Spent:
    """As `before`, but processor time first: asking for the rest costs some."""
    threads = thread_times(server.pid)
    return Spent(threads, *parts_of(server))


def thread_times(pid: int) -> dict[str, float]:
    """Processor seconds by name of thread. The first thread is the event loop; those without a name of ours compute."""
    found: dict[str, float] = {}
    for thread, taken in on_core_s_by_thread(pid).items():
        name = {"main": "loop"}.get(thread, thread)
        name = name if name in ("loop", "engine", "encode", "edge") else "workers"
        found[name] = found.get(name, 0.0) + taken
    return found


async def over_http(server: harness.Server, prompts: list[list[int]], n_out: int) -> Run:
    was, client_was, began = before(server), time.process_time(), time.perf_counter()
    await asyncio.gather(*(harness.stream(server.target, prompt, n_out) for prompt in prompts))
    seconds, client_s = time.perf_counter() - began, time.process_time() - client_was
    return Run(seconds, client_s, after(server).since(was))


async def first_tokens(server: harness.Server, dice: random.Random) -> list[float]:
    """Seconds to the first token on an idle server, above what the model took for that step."""
    above: list[float] = []
    for _ in range(N_FIRST):
        await asyncio.sleep(PAUSE_S)
        was = before(server)
        reply = await harness.stream(server.target, harness.random_ids(dice, FIRST_PROMPT), 1)
        spent = after(server).since(was)
        above.append(harness.ttft(reply) - spent.parts["compute"])
    return above


# ------------------------------------------------------------------------------------------------------- the engine alone


def engine_alone(model: str) -> int:
    """Answers each line of JSON on stdin, {prompts, n_out}, with the seconds that it took."""
    with LLM(model, max_num_seqs=MAX_SEQS) as llm:
        for line in sys.stdin:
            asked = json.loads(line)
            params = SamplingParams(temperature=0, max_tokens=asked["n_out"], ignore_eos=True)
            began = time.perf_counter()
            llm.generate([TokenPrompt(tuple(ids)) for ids in asked["prompts"]], params)
            sys.stdout.write(f"{time.perf_counter() - began}\n")
            sys.stdout.flush()
    return 0


class Alone(NamedTuple):
    child: subprocess.Popen[str]

    def seconds(self, prompts: list[list[int]], n_out: int) -> float:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps({"prompts": prompts, "n_out": n_out}) + "\n")
        self.child.stdin.flush()
        return float(self.child.stdout.readline())


@contextmanager
def alone(model: str) -> Iterator[Alone]:
    command = [sys.executable, __file__, "--alone", "--model", model]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=harness.environment())
    try:
        yield Alone(child)
    finally:
        try:
            child.communicate(timeout=harness.STOP_S)  # its input ends, and so does it
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()


# --------------------------------------------------------------------------------------------------------------- reports


def share_of_time(run: Run) -> float:
    """Of one request's time, what is not the model."""
    return 1 - run.spent.parts["compute"] / run.seconds


def share_of_cpu(run: Run) -> float:
    """Of the server's processor time, what is not the model."""
    owners = run.by_owner
    return 1 - owners["model"] / sum(owners.values())


def table(single: Run, many: Run, n_out: int, n_streams: int) -> str:
    def row(what: str, one: float, all_streams: float) -> tuple[str, str, str]:
        return what, cell(one, n_out), cell(all_streams, n_out * n_streams)

    rows = [row(f"engine thread: {what}", single.spent.parts[part], many.spent.parts[part]) for part, what in PARTS.items()]
    rows += [row(f"CPU: {what}", single.spent.threads.get(name, 0.0), many.spent.threads.get(name, 0.0)) for name, what in THREADS.items()]
    rows += [row("CPU: the client", single.client_s, many.client_s), row("all of it, by the clock", single.seconds, many.seconds)]
    return harness.table(("µs a token", "1 stream", f"{n_streams} streams"), rows)


def cell(seconds: float, tokens: int) -> str:
    return f"{1e6 * seconds / tokens:.1f}"


def median_run(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def measure(model: str, n: int, n_prompt: int, n_out: int, rounds: int) -> Measured:
    dice = random.Random(11)
    found = Measured([], [], [], [], [])

    def prompts(count: int) -> list[list[int]]:
        return [harness.random_ids(dice, n_prompt) for _ in range(count)]

    with harness.serving("--max-num-seqs", str(MAX_SEQS), model=model) as server, alone(model) as engine:
        engine.seconds(prompts(4), 8)
        harness.run(over_http(server, prompts(4), 8), LIMIT_S)
        for _ in range(rounds):
            asked = prompts(n)
            found.engine_s.append(engine.seconds(asked, n_out))
            found.many.append(harness.run(over_http(server, asked, n_out), LIMIT_S))
            found.single.append(harness.run(over_http(server, prompts(1), n_out), LIMIT_S))
        found.first_s.extend(harness.run(first_tokens(server, dice), LIMIT_S))
    found.ratios.extend(engine / run.seconds for engine, run in zip(found.engine_s, found.many, strict=True))
    return found


class Measured(NamedTuple):
    ratios: list[float]
    engine_s: list[float]
    first_s: list[float]
    single: list[Run]
    many: list[Run]


def lines_of(measured: Measured, n: int, n_out: int) -> list[harness.Line]:
    one, many = median_run(measured.single), median_run(measured.many)
    ratio, first_ms = statistics.median(measured.ratios), 1000 * statistics.median(measured.first_s)
    one_share, cpu_share = share_of_time(one), share_of_cpu(many)
    bar_1, bar_n = STEP_US + ROW_US, STEP_US + ROW_US * n
    spread = f"{min(measured.ratios):.3f} to {max(measured.ratios):.3f}"
    return [
        harness.Line("one stream: share of time that is not the model", f"{one_share:.1%}", f"{ONE_SHARE:.0%}", one_share <= ONE_SHARE),
        harness.Line(f"{n} streams: share of CPU that is not the model", f"{cpu_share:.1%}", f"{MANY_SHARE:.0%}", cpu_share <= MANY_SHARE),
        harness.Line(f"{n} streams over HTTP, of the engine alone", f"{ratio:.3f} ({spread})", f"{OVER_HTTP}", ratio >= OVER_HTTP),
        harness.Line(f"{n} streams over HTTP, tok/s", f"{n * n_out / many.seconds:.0f}"),
        harness.Line("CPU of the client meanwhile", f"{many.client_s:.2f} s of {many.seconds:.2f} s"),
        harness.Line("first token, idle, above the model's own time", f"{first_ms:.2f} ms", f"{FIRST_MS:g} ms", first_ms <= FIRST_MS),
        harness.Line("Python of a step, 1 running", f"{one.python_us:.0f} µs", f"{bar_1} µs", one.python_us <= bar_1),
        harness.Line(f"Python of a step, {n} running", f"{many.python_us:.0f} µs", f"{bar_n} µs", many.python_us <= bar_n),
    ]


def main() -> int:
    parser = harness.parser(__doc__, "path")
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=128, help="of each answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--alone", action="store_true", help="be the engine without a server; used by this script")
    args = parser.parse_args()
    if args.alone:
        return engine_alone(args.model)
    measured = measure(args.model, args.streams, args.prompt, args.tokens, args.rounds)
    lines = lines_of(measured, args.streams, args.tokens)
    one, many = median_run(measured.single), median_run(measured.many)
    text = harness.verdicts(lines) + "\n\n" + table(one, many, args.tokens, args.streams)
    runs = {"single": [figures_of(run) for run in measured.single], "many": [figures_of(run) for run in measured.many]}
    figures = {"ratios": measured.ratios, "engine_s": measured.engine_s, "first_s": measured.first_s, **runs}
    return harness.finish(args.out, text, figures, lines)


def figures_of(run: Run) -> dict[str, object]:
    return {"seconds": run.seconds, "client_s": run.client_s, **run.spent._asdict()}


if __name__ == "__main__":
    sys.exit(main())
