"""`camshaft serve` as its users meet it: a load of streams, the first token, the start, memory, and what it costs while idle."""

from __future__ import annotations

import json
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import harness

from beside import client
from beside.shell import AbsentError, last_json
from camshaft.bench.processes import on_core_s
from camshaft.bench.server_process import ServerProcess
from camshaft.bench.sse_client import Target

CLIENT = Path(client.__file__)
PREFILL = re.compile(r'^camshaft_request_stage_seconds_sum\{.*stage="prefill".*\} (\S+)$', re.MULTILINE)
N_TURNS = 2
N_FIRST = 11  # requests whose first token is timed
PAUSE_S = 0.15  # before each: long enough for every thread to have gone to sleep
IDLE_S = 20.0
START_LIMIT_S = 60.0
KV_MIB = 64  # small, so that it can be filled: what is not written is not resident

Figures = dict[str, float]


def body(dice: random.Random, prompt: int, gen: int) -> dict[str, Any]:
    ids = harness.random_ids(dice, prompt)
    asked = {"prompt": ids, "max_tokens": gen, "ignore_eos": True, "temperature": 0, "stream": True}
    return asked | {"stream_options": {"include_usage": True}}


def together(server: harness.Server, seed: int, n: int, prompt: int, gen: int) -> dict[str, Any]:
    """n streams at once, by a client in a process of its own. Another seed, other prompts: the server keeps prefixes."""
    dice = random.Random(seed)
    asked = {"host": server.target.host, "port": server.target.port, "bodies": [body(dice, prompt, gen) for _ in range(n)]}
    done = subprocess.run([sys.executable, "-P", CLIENT], input=json.dumps(asked), capture_output=True, text=True, timeout=client.LIMIT_S)
    if done.returncode:
        raise AbsentError(f"the client failed: {done.stderr.strip().splitlines()[-1][:300]}")
    return dict(last_json(done.stdout))


def http(model: Path, threads: int, case: tuple[int, int, int], engine_tok_s: Callable[[], float]) -> Figures:
    """The first token on an idle server beyond the engine's own prefill time; then a load of streams and the same by the engine alone,
    twice in turn: a ratio needs both sides under the same neighbours.
    """
    n, prompt, gen = case
    turns = []
    with harness.serving("--threads", str(threads), "--log-level", "warning", model=str(model)) as server:
        beyond = first_token_s(server)
        together(server, N_TURNS, n, prompt, 4)  # first touch of pages, as the engine's has it
        for turn in range(N_TURNS):
            load = together(server, turn, *case)
            if load["tokens"] != n * gen:
                raise AbsentError(f"{load['tokens']} tokens came for {n * gen}")
            rate = load["tokens"] / load["seconds"]
            turns.append({"gen_tok_s": rate, "engine": engine_tok_s(), "client_cpu_s": load["cpu_s"], "events": load["events"]})
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]} | {"first_token_beyond_prefill_s": beyond}


def first_token_s(server: harness.Server, prompt: int = 32) -> float:
    """Median seconds from the request's first byte to its first text, less what this request's prefill took by the server's own books."""
    dice = random.Random(1)
    beyond = []
    for _ in range(N_FIRST + 2):
        before = _prefill_s(server)
        time.sleep(PAUSE_S)
        request = json.dumps(body(dice, prompt, 2)).encode()
        found = client.run(server.target.host, server.target.port, [request])
        time.sleep(PAUSE_S)  # the books are closed after the last event
        first: Any = found["first_s"]
        beyond.append(first[0] - (_prefill_s(server) - before))
    return float(statistics.median(beyond[2:]))


def _prefill_s(server: harness.Server) -> float:
    found = PREFILL.search(harness.fetch(server.target, "/metrics"))
    if found is None:
        raise AbsentError("the server's metrics have no prefill stage")
    return float(found[1])


def start(model: Path, threads: int) -> Figures:
    """Seconds from `camshaft serve` to ready: with the model's file alone in the cache folder, then once more with what the first left.

    As after an installation, which compiles the modules: a start before both does so here.
    """
    with tempfile.TemporaryDirectory(prefix="camshaft-start-") as folder:
        caches = [Path(folder) / name for name in ("before", "cache")]
        for cache in caches:
            cache.mkdir()
            shutil.copyfile(model, cache / model.name)
        _, first_s, second_s = (_ready_s(threads, cache, Path(folder) / "bytecode") for cache in (*caches, caches[-1]))
        return {"first_s": first_s, "second_s": second_s}


def _ready_s(threads: int, cache: Path, bytecode: Path) -> float:
    """Of the default model, by the module that the `camshaft` command starts."""
    port = harness.free_port()
    command = [sys.executable, "-m", "camshaft.cli.entry", "serve", "--port", str(port), "--threads", str(threads)]
    began = time.perf_counter()
    process = ServerProcess(command, cache / "said.log", {"CAMSHAFT_CACHE": str(cache), **harness.with_bytecode(bytecode)})
    try:
        process.await_up(lambda: harness.answers(Target("127.0.0.1", port), "/ready"), START_LIMIT_S, pause_s=0.01)
        return time.perf_counter() - began
    finally:
        process.stop(harness.STOP_S)


def resident(model: Path, threads: int) -> Figures:
    """Resident bytes after 32 streams and once every KV block has been written; then the share of a core that an idle server takes."""
    flags = ("--threads", str(threads), "--kv-memory", f"{KV_MIB}M", "--log-level", "warning")
    with harness.serving(*flags, model=str(model)) as server:
        together(server, 0, 32, 64, 16)
        together(server, 0, 8, 1000, 1)  # more tokens than the pool holds
        time.sleep(2.0)
        used, began = on_core_s([server.pid]), time.perf_counter()
        time.sleep(IDLE_S)
        idle = (on_core_s([server.pid]) - used) / (time.perf_counter() - began)
        return {"resident_bytes": _resident_bytes(server.pid), "kv_bytes": KV_MIB << 20, "idle_share": idle}


def _resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AbsentError("the system does not tell resident memory")
