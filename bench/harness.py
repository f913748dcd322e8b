"""What the measuring scripts share: a server as a child process, what it used, streams read to the end, tables, results with their machine.

Everything stays on the loopback address. A script that starts a server ends it by its process id.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import uvloop

from camshaft.bench.machine import fingerprint
from camshaft.bench.server_process import ServerProcess
from camshaft.bench.server_process import environment as environment
from camshaft.bench.sse_client import Reply, Target, post

LOAD_BEFORE = os.getloadavg()[0]  # of whatever else this machine does
RESULTS = Path(__file__).parent / "results"
START_S = 120.0  # for a server to be ready: the model's packing, and its download at the first use
STOP_S = 40.0
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
STAGE = re.compile(r'^camshaft_request_stage_seconds_(sum|count)\{.*stage="(\w+)".*\} (\S+)$', re.MULTILINE)
VOCAB = 40_000  # random prompts draw ids below this; every model of the catalogue has more


def with_bytecode(folder: Path) -> dict[str, str]:
    """What makes a Python process keep its compiled modules in `folder` and find them there, whatever the environment says."""
    return {"PYTHONPYCACHEPREFIX": str(folder), "PYTHONDONTWRITEBYTECODE": ""}


class Server(NamedTuple):
    target: Target
    pid: int

    def cpu_s(self) -> float:
        """Processor seconds of the process so far, all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def stages(self) -> dict[str, float]:
        """Mean seconds of a request in each of its stages, since the server started."""
        sums: dict[str, dict[str, float]] = {"sum": {}, "count": {}}
        for kind, stage, value in STAGE.findall(fetch(self.target, "/metrics")):
            sums[kind][stage] = float(value)
        return {stage: total / max(1.0, sums["count"][stage]) for stage, total in sums["sum"].items()}


@contextmanager
def serving(*flags: str, model: str = "") -> Iterator[Server]:
    """`camshaft serve` on a free port, ready. Raises SystemExit with what it said where it does not come up."""
    port = free_port()
    command = [sys.executable, "-m", "camshaft.cli.main", "serve", *([model] if model else []), "--port", str(port), *flags]
    target = Target("127.0.0.1", port)
    with tempfile.TemporaryDirectory(prefix="camshaft-serve-") as folder:
        process = ServerProcess(command, Path(folder) / "said.log")
        try:
            try:
                process.await_up(lambda: answers(target, "/ready"), START_S)
            except RuntimeError as error:
                raise SystemExit(str(error)) from None
            yield Server(target, process.pid)
        finally:
            process.stop(STOP_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(target: Target, path: str) -> bool:
    """Whether a GET is answered well."""
    try:
        fetch(target, path)
        return True
    except OSError:
        return False


def fetch(target: Target, path: str) -> str:
    """A GET. Raises OSError, of which urllib's errors are."""
    with urllib.request.urlopen(f"http://{target.host}:{target.port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


# ------------------------------------------------------------------------------------------------------------------ calls


def random_ids(dice: random.Random, n: int) -> list[int]:
    return [dice.randrange(100, VOCAB) for _ in range(n)]


async def stream(target: Target, prompt: str | Sequence[int], n_out: int, into: Reply | None = None, deadline_s: float = 600.0) -> Reply:
    """One completion of exactly `n_out` tokens. Raises RuntimeError for anything but a complete answer."""
    body = {
        "prompt": prompt,
        "max_tokens": n_out,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    reply = await post(target, "/v1/completions", json.dumps(body).encode(), deadline_s=deadline_s, into=into)
    if reply.status != 200 or not reply.events or reply.events[-1].data != "[DONE]" or any('"error":' in e.data for e in reply.events[-2:]):
        raise RuntimeError(f"a request failed: {reply.status} {(reply.body or repr(reply.events[-2:]).encode())[:500]!r}")
    return reply


def text_times(reply: Reply) -> list[float]:
    """When each event with text came, perf_counter seconds."""
    return [event.at for event in reply.events if '"text":"' in event.data and '"text":""' not in event.data]


def gaps(reply: Reply) -> list[float]:
    """Seconds between one piece of text and the next."""
    times = text_times(reply)
    return [later - sooner for sooner, later in pairwise(times)]


def ttft(reply: Reply) -> float:
    return text_times(reply)[0] - reply.sent_at


def usage(reply: Reply) -> dict[str, Any]:
    for event in reversed(reply.events):
        if event.data != "[DONE]" and (found := json.loads(event.data).get("usage")):
            return dict(found)
    raise RuntimeError("an answer without usage")


def quantile(values: Iterable[float], q: float) -> float:
    """By nearest rank."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(q * len(ranked)))]


def run(work: Coroutine[Any, Any, Any], limit_s: float) -> Any:
    """The coroutine on a loop of its own, ended when it takes longer than a measurement may."""

    async def bounded() -> Any:
        async with asyncio.timeout(limit_s):
            return await work

    return uvloop.run(bounded())


# ---------------------------------------------------------------------------------------------------------------- reports


class Line(NamedTuple):
    """A figure beside its bar. `held` is None for a figure without a bar."""

    what: str
    figure: str
    bar: str = ""
    held: bool | None = None


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def verdicts(lines: Sequence[Line]) -> str:
    words = {True: "held", False: "**missed**", None: ""}
    return table(("figure", "measured", "bar", ""), [(line.what, line.figure, line.bar, words[line.held]) for line in lines])


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    made.add_argument("--model", default="", help="catalogue name or path (default: the default model)")
    made.add_argument("--out", type=Path, default=RESULTS / f"{name}.json", help=f"(default: bench/results/{name}.json)")
    return made


def finish(out: Path, text: str, figures: Mapping[str, Any], lines: Sequence[Line] = ()) -> int:
    """Print the table, keep the figures with the machine and its load, and give the exit status: 1 where a bar was missed."""
    machine = msgspec.to_builtins(fingerprint())
    after = os.getloadavg()[0]
    kept = {
        "machine": machine,
        "load_before": round(LOAD_BEFORE, 2),
        "load_after": round(after, 2),
        "at": time.strftime("%Y-%m-%d %H:%M"),
        "argv": sys.argv[1:],
        "table": text,
        **figures,
    }
    kept["bars"] = [line._asdict() for line in lines]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(kept, indent=2) + "\n")
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}"
    sys.stdout.write(f"{where}; load average {LOAD_BEFORE:.1f} before, {after:.1f} after\n\n{text}\n")
    return 1 if any(line.held is False for line in lines) else 0
