"""One measurement of ourselves in a process of its own, so that none inherits another's warm memory. Settings and figures are JSON.

python -m beside.ours_child '{"what": "speeds", "model": PATH, "config": {...}, ...}'
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping
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
    """tok/s of a prompt of 512 and of 32 sequences decoding at a context of 32: steps alone, on one thread and on all, in turn.

    A neighbour on the same machine comes and goes within seconds, and a ratio needs both sides under the same one. Medians of 7 and 28.
    """
    cpus = {
        mark: runner(asked | {"config": {**asked["config"], **threads}}) for mark, threads in ((", 1 thread", {"threads": 1}), ("", {}))
    }
    alone = {mark: Steps(cpu, n_rows=1, n_positions=512) for mark, cpu in cpus.items()}
    prompt_s = [{mark: steps.seconds(start=0, n_new=512) for mark, steps in alone.items()} for _ in range(8)]
    for steps in alone.values():
        steps.close()
    many = {mark: Steps(cpu, n_rows=32, n_positions=64) for mark, cpu in cpus.items()}
    for steps in many.values():
        steps.fill(32)
    decode_s = [{mark: steps.seconds(start=32 + i) for mark, steps in many.items()} for i in range(32)]
    figures: Figures = {}
    for mark in cpus:
        figures[f"prefill 512{mark}"] = 512 / statistics.median(took[mark] for took in prompt_s[1:])
        figures[f"32 x decode{mark}"] = 32 / statistics.median(took[mark] for took in decode_s[4:])
    return figures


def capacity(asked: Mapping[str, Any]) -> Figures:
    """Tokens that one budget of KV memory holds."""
    held = runner(asked).capacity()
    return {"tokens": held.n_blocks * held.block_size / len(held.groups)}


def quality(asked: Mapping[str, Any]) -> Figures:
    """Perplexity as bench/perplexity.py measures it."""
    case = quality_bench.Case(asked["model"], False, "int8", asked["kv_dtype"], 0.0, 0.0)
    return {"perplexity": quality_bench.measure(case, Path(asked["text"]).read_text(encoding="utf-8"), quality_bench.N_TOKENS).perplexity}


WHAT: Mapping[str, Callable[[Mapping[str, Any]], Figures]] = {
    run.__name__: run for run in (speeds, prefill, verify, long_decode, scaling, capacity, quality)
}

if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    sys.stdout.write("\n" + json.dumps(WHAT[wanted["what"]](wanted)) + "\n")
