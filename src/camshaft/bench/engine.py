"""Prefill, decode and batch speed of one engine, beside the machine's limits measured in the same run."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import Struct

from camshaft import _native
from camshaft.bench.machine import Machine, fingerprint
from camshaft.config import EngineConfig
from camshaft.engine.llm import LLM
from camshaft.types import SamplingParams, TokenPrompt


class Prefill(Struct, frozen=True):
    tokens: int
    tok_s: float
    share_of_peak: float  # linear-layer operations over the whole wall time, over the int8 dot peak


class Decode(Struct, frozen=True):
    tok_s: float
    share_of_bandwidth: float  # tensor bytes as they are in the file, over the DRAM read bandwidth


class Batch(Struct, frozen=True):
    n: int
    prompt: int
    gen: int
    gen_tok_s: float  # generated tokens over the whole time, prefill included


class Roofline(Struct, frozen=True):
    dram_gb_s: float
    int8_gop_s: float


class Speeds(Struct, frozen=True):
    """What an engine did, and the sizes that turn it into shares."""

    model: str
    tensor_bytes: int  # as in the file
    linear_weights: int
    packed_bytes: int
    prefill_tok_s: float
    decode_tok_s: float
    batch: tuple[Batch, ...]


class EngineReport(Struct, frozen=True):
    model: str
    machine: Machine
    prefill: Prefill
    decode: Decode
    batch: tuple[Batch, ...]
    roofline: Roofline


def roofline(threads: int, isa: str) -> Roofline:
    """The best of 10 read sweeps over at least 1 GiB, and a dot loop in registers, by all threads."""
    dram, int8 = _native.roofline(threads, isa, 1.0)
    return Roofline(dram_gb_s=round(dram, 2), int8_gop_s=round(int8, 1))


def measure(
    path: str, config: EngineConfig, *, batches: Sequence[tuple[int, int, int]], rounds: int = 3, prefill_tokens: int = 512
) -> EngineReport:
    """The speeds of one engine and the limits of the machine, in the same run."""
    machine = fingerprint()
    found = speeds(path, config, batches=batches, rounds=rounds, prefill_tokens=prefill_tokens)
    limits = roofline(config.threads or _native.usable_cores(), machine.isa)
    return EngineReport(
        model=found.model,
        machine=machine,
        prefill=Prefill(
            tokens=prefill_tokens,
            tok_s=round(found.prefill_tok_s, 1),
            share_of_peak=round(share_of_peak(found.linear_weights, found.prefill_tok_s, limits), 3),
        ),
        decode=Decode(
            tok_s=round(found.decode_tok_s, 1),
            share_of_bandwidth=round(share_of_bandwidth(found.tensor_bytes, found.decode_tok_s, limits), 3),
        ),
        batch=found.batch,
        roofline=limits,
    )


def share_of_peak(linear_weights: int, prefill_tok_s: float, limits: Roofline) -> float:
    """Of the int8 peak: two operations for each weight of the layers' matrices and token; attention and head are not counted."""
    return 2e-9 * linear_weights * prefill_tok_s / limits.int8_gop_s


def share_of_bandwidth(bytes_per_token: float, decode_tok_s: float, limits: Roofline) -> float:
    """Of the DRAM read bandwidth."""
    return 1e-9 * bytes_per_token * decode_tok_s / limits.dram_gb_s


def speeds(
    path: str,
    config: EngineConfig,
    *,
    batches: Sequence[tuple[int, int, int]],
    rounds: int = 3,
    batch_rounds: int = 0,
    prefill_tokens: int = 512,
) -> Speeds:
    """Medians over `rounds` of each figure, those of batches over `batch_rounds`, or as many where it is 0.

    Prompts are random ids with a fixed seed; nothing is shared between them.
    """
    largest = max((n for n, _, _ in batches), default=1)
    with LLM(path, config=_settings(config, largest)) as llm:
        ask = _asker(llm, random.Random(0))
        prefill_s = _prefill_s(ask, prefill_tokens, rounds)
        decode_s = _median(rounds, lambda: ask(1, 16, 129) - ask(1, 16, 1))
        batch_s = [(case, _median(batch_rounds or rounds, lambda case=case: ask(*case))) for case in batches]  # type: ignore[misc]
        return Speeds(
            model=llm.model.name,
            tensor_bytes=llm.model.tensor_bytes,
            linear_weights=llm.model.linear_weights,
            packed_bytes=llm.model.packed_bytes,
            prefill_tok_s=prefill_tokens / prefill_s,
            decode_tok_s=128 / decode_s,
            batch=tuple(Batch(n=n, prompt=p, gen=g, gen_tok_s=round(n * g / seconds, 1)) for (n, p, g), seconds in batch_s),
        )


def prefill_tok_s(path: str, config: EngineConfig, *, rounds: int = 3, tokens: int = 512) -> float:
    """That of `speeds` alone."""
    with LLM(path, config=_settings(config)) as llm:
        return tokens / _prefill_s(_asker(llm, random.Random(0)), tokens, rounds)


def batch_tok_s(path: str, config: EngineConfig, case: tuple[int, int, int]) -> float:
    """Generated tokens a second of one batch (n, prompt, gen), as `speeds` counts them."""
    n, prompt, gen = case
    with LLM(path, config=_settings(config, n)) as llm:
        ask = _asker(llm, random.Random(0))
        ask(n, prompt, 4)  # first touch of pages
        return n * gen / ask(n, prompt, gen)


def _settings(config: EngineConfig, n: int = 1) -> EngineConfig:
    """For n sequences at once, of which none finds another's prefix."""
    return replace(config, prefix_caching=False, max_num_seqs=max(config.max_num_seqs, n))


def _prefill_s(ask: Callable[[int, int, int], float], tokens: int, rounds: int) -> float:
    ask(1, tokens, 4)  # first touch of pages and caches
    return _median(rounds, lambda: ask(1, tokens, 1))


def _asker(llm: LLM, dice: random.Random) -> Callable[[int, int, int], float]:
    vocab = llm.model.vocab_size

    def ask(n: int, prompt: int, gen: int) -> float:
        """Seconds for n requests of `prompt` random tokens that each generate exactly `gen`."""
        prompts = [TokenPrompt(tuple(dice.randrange(3, vocab) for _ in range(prompt))) for _ in range(n)]
        params = SamplingParams(temperature=0, max_tokens=gen, ignore_eos=True)
        started = time.perf_counter()
        llm.generate(prompts, params)
        return time.perf_counter() - started

    return ask


def _median(rounds: int, run: Callable[[], float]) -> float:
    return statistics.median(run() for _ in range(rounds))
