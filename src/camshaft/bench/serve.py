"""A load of streaming clients against a running server: TTFT, time between tokens, throughput, failures."""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise

from msgspec import Struct

from camshaft.bench.sse_client import Reply, Target, post

WORDS = ("valve", "piston", "crank", "spark", "fuel", "timing", "torque", "oil", "gear", "shaft", "stroke", "intake", "boost", "idle")


class Load(Struct, frozen=True):
    """`rate` is arrivals a second (Poisson); 0 keeps `concurrency` clients busy without pause."""

    requests: int = 64
    concurrency: int = 16
    prompt_words: int = 96
    gen: int = 128
    rate: float = 0.0
    seed: int = 0
    deadline_s: float = 300.0


class Spread(Struct, frozen=True):
    p50: float
    p90: float
    p99: float


class ServeReport(Struct, frozen=True):
    model: str
    load: Load
    ok: int
    failed: int
    seconds: float
    generated_tok_s: float
    ttft_ms: Spread
    tpot_ms: Spread  # time per output token after the first, per request
    gap_ms: Spread  # between one text chunk and the next, over all streams
    chunks_per_request: float


async def run(target: Target, model: str, load: Load) -> ServeReport:
    """Sends `load.requests` streaming completions and waits for all of them."""
    gate = asyncio.Semaphore(load.concurrency)
    dice = random.Random(load.seed)
    started = time.perf_counter()
    tasks: list[asyncio.Task[Reply | None]] = []
    for number in range(load.requests):
        prompt = " ".join(dice.choices(WORDS, k=load.prompt_words))
        body = {
            "model": model, "prompt": f"{number} {prompt}", "max_tokens": load.gen, "ignore_eos": True, "stream": True,
            "temperature": 0, "stream_options": {"include_usage": True},
        }  # fmt: skip
        if load.rate > 0:
            await asyncio.sleep(dice.expovariate(load.rate))
        tasks.append(asyncio.create_task(_one(gate, target, json.dumps(body).encode(), load.deadline_s)))
    replies = [r for r in await asyncio.gather(*tasks) if r is not None]
    return _report(model, load, replies, time.perf_counter() - started)


async def _one(gate: asyncio.Semaphore, target: Target, body: bytes, deadline_s: float) -> Reply | None:
    async with gate:
        try:
            reply = await post(target, "/v1/completions", body, deadline_s=deadline_s)
        except (OSError, TimeoutError, ValueError):
            return None
    complete = reply.status == 200 and reply.events and reply.events[-1].data == "[DONE]"
    return reply if complete else None


def _report(model: str, load: Load, replies: Sequence[Reply], seconds: float) -> ServeReport:
    ttft, tpot, gaps, chunks, tokens = [], [], [], [], 0
    for reply in replies:
        texts = [e.at for e in reply.events if '"text":' in e.data and '"usage":{' not in e.data]
        usage = next((u for e in reversed(reply.events) if e.data != "[DONE]" and (u := json.loads(e.data).get("usage"))), None)
        if not texts or usage is None:
            continue
        n_out = usage["completion_tokens"]
        tokens += n_out
        ttft.append(texts[0] - reply.sent_at)
        if n_out > 1:
            tpot.append((texts[-1] - texts[0]) / (n_out - 1))
        gaps += [b - a for a, b in pairwise(texts)]
        chunks.append(len(texts))
    return ServeReport(
        model=model,
        load=load,
        ok=len(replies),
        failed=load.requests - len(replies),
        seconds=round(seconds, 3),
        generated_tok_s=round(tokens / seconds, 1),
        ttft_ms=_spread(ttft),
        tpot_ms=_spread(tpot),
        gap_ms=_spread(gaps),
        chunks_per_request=round(statistics.fmean(chunks), 1) if chunks else 0.0,
    )


def _spread(seconds: Sequence[float]) -> Spread:
    """p50, p90, p99 in milliseconds, by nearest rank."""
    ranked = sorted(seconds) or [0.0]
    at = [ranked[min(len(ranked) - 1, int(q * len(ranked)))] for q in (0.5, 0.9, 0.99)]
    return Spread(*(round(1000 * value, 2) for value in at))
