"""From `camshaft serve` to ready, with an earlier start's packed weights and without; memory beside weights and KV; an idle server's cost.

    python bench/start.py [--rounds 5] [--idle-s 20]

The model's file is in the system's cache, and Python's modules are compiled, as they are once a package is installed. Time runs from the
start of the process to the line that says `ready`.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import harness

from camshaft.bench.processes import on_core_s
from camshaft.bench.sse_client import Target
from camshaft.formats import source

FIRST_S, SECOND_S, BESIDE_MB, IDLE_SHARE = 3.0, 1.0, 150.0, 0.01
PACKED = re.compile(r"(\d+) MB of packed weights")


class Started(NamedTuple):
    pid: int
    target: Target
    seconds: float
    packed_mb: float


@contextmanager
def started(model: Path, cache: Path) -> Iterator[Started]:
    """A server, ready. Raises SystemExit with what it said where it does not come up."""
    port = harness.free_port()
    command = [sys.executable, "-m", "camshaft.cli.entry", "serve", str(model), "--port", str(port)]
    env = harness.environment() | harness.with_bytecode(cache / "bytecode") | {"CAMSHAFT_CACHE": str(cache)}
    began = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
    assert child.stderr is not None
    said = ""
    try:
        for line in child.stderr:
            said += line
            if line.startswith("ready"):
                break
        else:
            raise SystemExit(f"the server did not start:\n{said}")
        seconds = time.perf_counter() - began
        packed = PACKED.search(said)
        yield Started(child.pid, Target("127.0.0.1", port), seconds, float(packed[1]) if packed else 0.0)
    finally:
        child.terminate()
        child.communicate(timeout=harness.STOP_S)


def beside_mb(server: Started) -> float:
    """Resident memory in MB without the packed weights and the KV pool, which is the largest of all maps without a file."""
    total_kb, maps = 0, []
    for line in Path(f"/proc/{server.pid}/smaps").read_text().splitlines():
        head = line.split()
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", head[0]):
            maps.append([len(head) > 5, 0, 0])
        elif head[0] in ("Size:", "Rss:"):
            maps[-1][1 if head[0] == "Size:" else 2] = int(head[1])
            total_kb += int(head[1]) if head[0] == "Rss:" else 0
    pool_kb = max((size, rss) for named, size, rss in maps if not named)[1]
    return (total_kb - pool_kb) * 1024 / 1e6 - server.packed_mb


def load(target: Target) -> None:
    """A long prompt, then 32 answers at once: every buffer has been written to by then."""

    def ask(n: int) -> None:
        harness.run(harness.stream(target, "word " * n, 32), 120.0)

    ask(700)
    with ThreadPoolExecutor(32) as clients:
        list(clients.map(ask, range(64, 96)))


def main() -> int:
    parser = harness.parser(__doc__, "start")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--idle-s", type=float, default=20.0)
    args = parser.parse_args()
    model = source.resolve(args.model)
    first: list[float] = []
    second: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        with started(model, cache):  # compiles the modules
            pass
        for _ in range(args.rounds):
            for kept in ("packed", "digests"):
                shutil.rmtree(cache / kept, ignore_errors=True)
            for seconds in (first, second):
                with started(model, cache) as server:
                    seconds.append(server.seconds)
        with started(model, cache) as server:
            time.sleep(2.0)
            before = on_core_s([server.pid])
            time.sleep(args.idle_s)
            idle = (on_core_s([server.pid]) - before) / args.idle_s
            fresh = beside_mb(server)
            load(server.target)
            used = beside_mb(server)
    one, two = statistics.median(first), statistics.median(second)
    lines = [
        harness.Line("first start to ready", f"{one:.2f} s ({min(first):.2f} to {max(first):.2f})", f"{FIRST_S} s", one <= FIRST_S),
        harness.Line("second start to ready", f"{two:.2f} s ({min(second):.2f} to {max(second):.2f})", f"{SECOND_S} s", two <= SECOND_S),
        harness.Line("memory beside packed weights and KV, just started", f"{fresh:.0f} MB"),
        harness.Line("the same after a long prompt and 32 answers at once", f"{used:.0f} MB", f"{BESIDE_MB:.0f} MB", used <= BESIDE_MB),
        harness.Line("idle server, share of one core", f"{idle:.2%}", f"{IDLE_SHARE:.0%}", idle <= IDLE_SHARE),
    ]
    figures = {"first_s": first, "second_s": second, "fresh_mb": fresh, "used_mb": used, "idle_share": idle}
    return harness.finish(args.out, harness.verdicts(lines), figures, lines)


if __name__ == "__main__":
    sys.exit(main())
