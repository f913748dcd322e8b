"""One measurement of ourselves in a process of its own, so that none inherits another's warm memory. Settings and figures are JSON.

python -m beside.ours_child '{"what": "speeds", "model": PATH, "config": {...}, ...}'
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import perplexity as quality_bench

from camshaft.bench import engine
from camshaft.bench.steps import Steps
from camshaft.config import EngineConfig
from camshaft.formats.open import open_model
from camshaft.runners.cpu import CpuRunner

Figures = dict[str, float]


def runner(asked: Mapping[str, Any]) -> CpuRunner:
    return CpuRunner(open_model(asked["model"]), EngineConfig(**asked["config"]))


def speeds(asked: Mapping[str, Any]) -> Figures:
    """tok/s of prefill and decode, medians of three, and of batches through the whole engine; sizes in bytes and weights."""
    batches = [tuple(b) for b in asked["batches"]]
    found = engine.speeds(asked["model"], EngineConfig(**asked["config"]), batches=batches, rounds=3, batch_rounds=1)
    figures = {f"{b.n} x ({b.prompt} + {b.gen})": b.gen_tok_s for b in found.batch}
    sizes = {"tensor_bytes": found.tensor_bytes, "linear_weights": found.linear_weights, "packed_bytes": found.packed_bytes}
    return {"prefill 512": found.prefill_tok_s, "decode": found.decode_tok_s} | figures | sizes


def prefill(asked: Mapping[str, Any]) -> Figures:
    """tok/s of a prompt of 512, as in `speeds`."""
    return {"prefill 512": engine.prefill_tok_s(asked["model"], EngineConfig(**asked["config"]))}


def batch(asked: Mapping[str, Any]) -> Figures:
    """Generated tok/s of one batch through the whole engine, as in `speeds`."""
    return {"gen_tok_s": engine.batch_tok_s(asked["model"], EngineConfig(**asked["config"]), tuple(asked["case"]))}


def verify(asked: Mapping[str, Any]) -> Figures:
    """Seconds of a step of one sequence at a context of 128: 1 token, and 4 whose logits are all wanted, in turn. Medians of 40."""
    steps = Steps(runner(asked), n_rows=1, n_positions=160)
    steps.fill(128)
    one, four = zip(*((steps.seconds(start=128), steps.seconds(start=128, n_new=4, n_sample=4)) for _ in range(44)), strict=True)
    return {"1 token": statistics.median(one[4:]), "4 tokens": statistics.median(four[4:])}


def long_decode(asked: Mapping[str, Any]) -> Figures:
    """tok/s of one sequence behind a context, and the bytes that a token reads: tensors as in the file, and the cache. Both types of
    cache, step by step in turn. Medians of 80."""
    context, n = asked["context"], 88
    cpus = {kv_dtype: runner(asked | {"config": {**asked["config"], "kv_dtype": kv_dtype}}) for kv_dtype in ("bf16", "int8")}
    steps = {kv_dtype: Steps(cpu, n_rows=1, n_positions=context + n) for kv_dtype, cpu in cpus.items()}
    for one in steps.values():
        one.fill(context)
    took = [{kv_dtype: one.seconds(start=context + i) for kv_dtype, one in steps.items()} for i in range(n)]
    figures: Figures = {}
    for kv_dtype, cpu in cpus.items():
        figures[f"decode, {kv_dtype}"] = 1 / statistics.median(step[kv_dtype] for step in took[8:])
        figures[f"bytes, {kv_dtype}"] = cpu.loaded.tensor_bytes + context * token_kv_bytes(cpu)
    return figures


def token_kv_bytes(cpu: CpuRunner) -> float:
    """KV bytes of a token over all layers, from what the runner reserved."""
    capacity = cpu.capacity()
    return cpu.loaded.kv_bytes / capacity.n_blocks / capacity.block_size * len(capacity.groups)


def scaling(asked: Mapping[str, Any]) -> Figures:
    """tok/s of a prompt of 512 and of 32 sequences decoding at a context of 32: steps alone, on one thread and on all, in turn; and what
    as many programs of one thread each, which never wait for one another, make of the same machine at the same time.

    A neighbour on the same machine comes and goes within seconds, and a ratio needs all sides under the same one. Medians of 7 and 28.
    """
    single = asked | {"config": {**asked["config"], "threads": 1}}
    n = asked["config"]["threads"]
    every, *programs = [runner(asked), *(runner(single) for _ in range(n))]
    figures: Figures = {}
    with ThreadPoolExecutor(n) as callers:
        for name, (rows, fill, new, warm, turns) in {"prefill 512": (1, 0, 512, 1, 7), "32 x decode": (32, 32, 1, 4, 28)}.items():
            steps = [Steps(cpu, n_rows=rows, n_positions=fill + new + 32) for cpu in (every, *programs)]
            for one in steps:
                one.fill(fill)
            took = [_turn(callers, steps, {"start": fill, "n_new": new}) for _ in range(warm + turns)]
            for mark, rates in zip(("", ", 1 thread", ", programs"), zip(*took[warm:], strict=True), strict=True):
                figures[f"{name}{mark}"] = rows * new * statistics.median(rates)
            for one in steps:
                one.close()
    return figures


def _turn(callers: ThreadPoolExecutor, steps: Sequence[Steps], asked: Mapping[str, int]) -> tuple[float, float, float]:
    """Steps a second of the first, on all threads; of the second, on one; and of all others together, the second included."""

    def rate(one: Steps) -> float:
        return 1 / one.seconds(**asked)

    return rate(steps[0]), rate(steps[1]), sum(callers.map(rate, steps[1:]))


def capacity(asked: Mapping[str, Any]) -> Figures:
    """Tokens that one budget of KV memory holds."""
    held = runner(asked).capacity()
    return {"tokens": held.n_blocks * held.block_size / len(held.groups)}


def quality(asked: Mapping[str, Any]) -> Figures:
    """Perplexity as bench/perplexity.py measures it."""
    case = quality_bench.Case(asked["model"], False, "int8", asked["kv_dtype"], 0.0, 0.0)
    return {"perplexity": quality_bench.measure(case, Path(asked["text"]).read_text(encoding="utf-8"), quality_bench.N_TOKENS).perplexity}


WHAT: Mapping[str, Callable[[Mapping[str, Any]], Figures]] = {
    run.__name__: run for run in (speeds, prefill, batch, verify, long_decode, scaling, capacity, quality)
}

if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    sys.stdout.write("\n" + json.dumps(WHAT[wanted["what"]](wanted)) + "\n")
