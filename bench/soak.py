"""256 clients that stream, leave and err for five minutes: one terminal event each, books that balance, memory that stays.

    python bench/soak.py [--clients 256] [--seconds 300] [--kv-memory 256M]

The server runs in this process, so that the engine's books can be proved while it works and at the end; the clients run in a process of
their own, so that their memory is not counted. The KV pool is touched first: what grows after that is a leak or a cache without bound.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import harness
import uvloop

from camshaft.api.app import create_app
from camshaft.api.directory import FixedModels
from camshaft.api.edge import Edge
from camshaft.api.served import ServedModel
from camshaft.api.server import serve
from camshaft.config import EngineConfig, ServerConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.loop import EngineLoop
from camshaft.observe.metrics import Metrics
from camshaft.runners.cpu import CpuRunner
from camshaft.tokenizer.dialogue import Dialogue

MOST_GROWTH_MB = 5.0
SETTLED_S = 120.0  # shorter runs see caches and allocators fill, which is no leak: for them growth has no bar
CHECK_EVERY_S = 10
GRACE_S = 180.0  # for the clients' last calls, beyond the time that they are to run
DEADLINE_S = 150.0  # the server's, for any request; the clients wait a little longer, so that a request without an end is seen
EMPTY_S = 30.0  # for the last blocks to be given back
NAME = "soak"


class Served(NamedTuple):
    url: str
    engine: AsyncEngine
    edge: Edge


class Errors(logging.Handler):
    """Log records of error level: none of them is a client's, for those are answers and at most warnings."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.lines) < 100:
            self.lines.append(self.format(record))


@contextmanager
def server_thread(model: str, config: EngineConfig) -> Iterator[Served]:
    """A server on a free port, on an event loop and a thread of its own."""
    ready = threading.Event()
    found: list[Served] = []
    stops: list[Any] = []

    async def main() -> None:
        metrics = Metrics()
        engine = AsyncEngine.from_model(model, config, metrics.engine(NAME))
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            loaded = engine.model
            chat = Dialogue(loaded.tokenizer, loaded.template) if loaded.can_chat else None
            served = ServedModel(
                name=NAME,
                upstream=engine,
                tokenizer=loaded.tokenizer,
                max_model_len=loaded.capacity.max_model_len,
                system_fingerprint=loaded.numerics_id,
                defaults=loaded.defaults,
                chat=chat,
                longest_s=config.default_deadline_s,
            )
            app = create_app(FixedModels([served]), ServerConfig(port=0), metrics)
            stops.append(lambda: loop.call_soon_threadsafe(stop.set))

            def listening(url: str) -> None:
                found.append(Served(url, engine, app.edge))
                ready.set()

            await serve(app, ServerConfig(port=0), listening, stop)
        finally:
            await engine.close()

    thread = threading.Thread(target=lambda: uvloop.run(main()), name="soak-server", daemon=True)
    thread.start()
    if not ready.wait(harness.START_S):
        raise SystemExit("the server did not start; its error is above")
    try:
        yield found[0]
    finally:
        stops[0]()
        thread.join(harness.STOP_S)


def touch(loop: EngineLoop) -> None:
    assert isinstance(loop.runner, CpuRunner)
    loop.runner.program.touch()


def resident_mb() -> float:
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


def watch(served: Served, clients: subprocess.Popen[str], limit_s: float) -> tuple[list[float], int]:
    """Resident MB each second and how often the books were proved, until the clients are through. Raises AssertionError, TimeoutError."""
    samples: list[float] = []
    n_checks = 0
    began = time.monotonic()
    while clients.poll() is None:
        if time.monotonic() - began > limit_s:
            raise TimeoutError(f"the clients are not through after {limit_s:g} s")
        samples.append(resident_mb())
        if len(samples) % CHECK_EVERY_S == 0:
            served.engine.engine.check()
            n_checks += 1
        time.sleep(max(0.0, began + len(samples) - time.monotonic()))
    return samples, n_checks


def prove_empty(served: Served) -> None:
    """Everything has been given back, and the books say so. Raises AssertionError."""
    engine = served.engine.engine
    deadline = time.monotonic() + EMPTY_S
    while (health := engine.health()).running or health.waiting or served.edge.n_inside:
        assert time.monotonic() < deadline, f"{health.running} run, {health.waiting} wait and {served.edge.n_inside} calls are inside still"
        time.sleep(0.05)
    engine.check()
    held = engine.ask(lambda loop: loop.kv.pool.n_usable - loop.kv.pool.n_available)
    assert held == 0, f"{held} blocks are held by nobody"


def growth_mb(samples: list[float], seconds: float) -> tuple[float, float]:
    """Resident MB about the end of the first minute (of a fifth, where it is shorter) and at the end."""
    start = int(min(60.0, seconds / 5))
    at_end = int(min(seconds, len(samples)))
    width = max(1, min(10, start // 2))
    return statistics.median(samples[start - width : start + width]), statistics.median(samples[at_end - width : at_end])


def main() -> int:
    parser = harness.parser(__doc__, "soak")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--kv-memory", default="256M")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    errors = Errors()
    logging.getLogger().addHandler(errors)
    config = EngineConfig(kv_memory=args.kv_memory, max_num_seqs=32, default_deadline_s=DEADLINE_S)
    with server_thread(args.model, config) as served:
        served.engine.engine.ask(touch, 60.0)
        script = Path(__file__).with_name("soak_clients.py")
        command = [sys.executable, script, served.url, "--clients", args.clients, "--seconds", args.seconds, "--seed", args.seed]
        clients = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)
        try:
            samples, n_checks = watch(served, clients, args.seconds + GRACE_S)
            said = clients.communicate()[0]
        finally:
            clients.kill()
        prove_empty(served)
    counts = json.loads(said)
    violations: list[str] = counts.pop("violations")
    before, after = growth_mb(samples, args.seconds)
    lines = [
        harness.Line(
            "requests", f"{sum(counts['calls'].values())}: " + ", ".join(f"{n} {kind}" for kind, n in sorted(counts["calls"].items()))
        ),
        harness.Line("without exactly one terminal event", str(len(violations)), "0", not violations),
        harness.Line("the books: pool, tree, slots, line", f"proved {n_checks + 1} times, empty at the end", "hold", True),
        harness.Line("errors in the log", str(len(errors.lines)), "0", not errors.lines),
        harness.Line(
            "resident memory, minute 1 to the end",
            f"{before:.1f} to {after:.1f} MB ({after - before:+.1f})",
            f"under {MOST_GROWTH_MB:g} MB",
            after - before < MOST_GROWTH_MB if args.seconds >= SETTLED_S else None,
        ),
    ]
    figures = {**counts, "violations": violations, "log_errors": errors.lines, "resident_mb": [round(mb, 2) for mb in samples]}
    return harness.finish(args.out, harness.verdicts(lines), figures, lines)


if __name__ == "__main__":
    sys.exit(main())
