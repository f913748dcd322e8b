"""Scheduling never changes output: the same probes under many schedules, logits compared bit for bit.

Each variant serves the same prompts, greedy and seeded, and records a digest of the float32 logits and the id of every sampled
position. A variant agrees when all its records equal those of the first one: alone, in one chunk, all threads.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
from msgspec import Struct

from camshaft.bench.machine import Machine, fingerprint
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.errors import ConfigError, from_info
from camshaft.formats import open_model
from camshaft.observe.metrics import Metrics
from camshaft.runners.cpu import CpuRunner
from camshaft.tokenizer import Tokenizer
from camshaft.types import Capacity, Failed, Mask, Request, SamplingParams, Started, StepPlan, StepResult, TokenPrompt

GREEDY = SamplingParams(temperature=0.0, seed=0, ignore_eos=True)
SEEDED = SamplingParams(temperature=0.9, top_p=0.95, top_k=50, seed=1234, ignore_eos=True)


@dataclass(frozen=True)
class Effort:
    """How much one variant serves. Lengths are prompt tokens, around tiles, blocks and spans."""

    lengths: tuple[int, ...]
    gen: int  # tokens sampled per probe
    mate_prompt: int  # longest prompt and answer of a mate
    mate_gen: int
    few_blocks: int  # a pool in which the probes and a dozen mates preempt one another


FULL = Effort((5, 33, 64, 150, 257), 24, 200, 64, 40)
LIGHT = Effort((31, 33), 4, 5, 4, 6)  # for the scalar kernels, which take seconds a token

# (prompt's ids, seed, position) -> (digest of the logits, sampled id)
Records = dict[tuple[bytes, int, int], tuple[bytes, int]]


class Verdict(Struct, frozen=True):
    """`n_compared` sampled positions, `n_different` of them unlike in logits or id. `evidence` shows that the variant was what it says."""

    variant: str
    n_compared: int
    n_different: int
    evidence: str


class InvarianceReport(Struct, frozen=True):
    model: str
    machine: Machine
    isa: str
    numerics_id: str
    verdicts: tuple[Verdict, ...]

    @property
    def holds(self) -> bool:
        return all(v.n_different == 0 for v in self.verdicts)


@dataclass(frozen=True)
class Variant:
    """One schedule. `mates` run beside the probes; `rounds` serves the probes again, so that the prefix cache is warm."""

    name: str
    changes: Mapping[str, object] = field(default_factory=dict)
    params: Mapping[str, object] = field(default_factory=dict)
    mates: int = 0
    rounds: int = 1
    together: bool = False  # all probes at once
    must_preempt: bool = False


# No wait of the bench is a failure: the scalar kernels take minutes where others take seconds.
_COMMON: dict[str, object] = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 2048,
    "prefix_caching": False,
    "queue_timeout_s": 86_400.0,
    "default_deadline_s": 86_400.0,
}

VARIANTS = (
    Variant("alone, whole"),
    Variant("among 64", mates=63, together=True),
    Variant("chunks of 1", {"max_num_batched_tokens": 1}),
    Variant("chunks of 7", {"max_num_batched_tokens": 7}, together=True),
    Variant("chunks of 64", {"max_num_batched_tokens": 64}, together=True),
    Variant("prefix hit", {"prefix_caching": True}, rounds=2),
    Variant("preempted", {"watermark": 0.0}, mates=24, together=True, must_preempt=True),  # admitted to the brim, whatever the pace
    Variant("one thread", {"threads": 1}),
    Variant("logprobs asked for", params={"logprobs": 5}),
    Variant("every token flushed", {"flush_tokens": 0, "flush_ms": 0.0}),
)


class TappedRunner:
    """A CpuRunner that keeps a record of every sampled position. `n_blocks` shrinks the pool that the engine sees."""

    def __init__(self, inner: CpuRunner, n_blocks: int) -> None:
        self.invariant = inner.invariant
        self.numerics_id = inner.numerics_id
        self.records: Records = {}
        self._inner = inner
        self._n_blocks = n_blocks
        self._open: dict[int, tuple[bytes, int]] = {}
        inner.program.keep_logits(True)

    def capacity(self) -> Capacity:
        known = self._inner.capacity()
        return Capacity(
            known.vocab_size,
            known.max_model_len,
            known.block_size,
            self._n_blocks or known.n_blocks,
            known.groups,
            known.max_slots,
            known.max_tokens,
        )

    def open(self, slot: int, params: SamplingParams, choice: int, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        self._open[slot] = (hashlib.sha256(repr(tuple(prompt_ids)).encode()).digest(), params.seed or 0)
        self._inner.open(slot, params, choice, prompt_ids, output_ids)

    def release(self, slot: int) -> None:
        self._inner.release(slot)

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        result = self._inner.step(plan, masks)
        logits = iter(self._inner.program.last_logits())
        for row, got in zip(plan.rows, result.rows, strict=True):
            if row.n_sample:
                key = (*self._open[row.slot], row.start + len(row.ids))
                self.records[key] = (hashlib.sha256(next(logits).tobytes()).digest(), got.ids[0])
        return result

    def close(self) -> None:
        self._inner.close()


async def run(path: Path, config: EngineConfig, isa: str, tell: Callable[[Verdict], None]) -> InvarianceReport:
    """Every variant on one instruction set. `tell` hears each verdict as it falls.

    Raises ConfigError for a schedule that was not what it says.
    """
    model = open_model(path)
    tokenizer = Tokenizer.from_model(model)
    verdicts: list[Verdict] = []
    base: Records = {}
    numerics = ""
    effort = LIGHT if isa == "ref" else FULL
    for variant in VARIANTS:
        settings = replace(config, **{**_COMMON, **variant.changes})  # type: ignore[arg-type]
        runner = TappedRunner(CpuRunner(model, settings, isa=isa), effort.few_blocks if variant.must_preempt else 0)
        evidence = await _serve(runner, settings, tokenizer, variant, effort)
        base = base or runner.records
        numerics = runner.numerics_id
        probes = [key for key in base if key in runner.records]
        n_different = sum(base[key] != runner.records[key] for key in probes)
        if len(probes) != len(base):
            raise ConfigError(f"{variant.name}: {len(base) - len(probes)} of {len(base)} positions were never sampled")
        verdicts.append(Verdict(variant.name, len(probes), n_different, evidence))
        tell(verdicts[-1])
    return InvarianceReport(model.spec.name, fingerprint(), isa, numerics, tuple(verdicts))


async def _serve(runner: TappedRunner, settings: EngineConfig, tokenizer: Tokenizer, variant: Variant, effort: Effort) -> str:
    """Runs the variant and says how it was what it claims to be."""
    metrics = Metrics()
    engine = AsyncEngine(Parts(runner, settings, metrics=metrics.engine("")), Speech(tokenizer))
    vocab = runner.capacity().vocab_size
    cached = 0
    try:
        for _ in range(variant.rounds):
            probes = [_ask(engine, request) for request in _probes(vocab, variant, effort)]
            if variant.together:
                mates = [_ask(engine, request) for request in _mates(vocab, variant.mates, effort)]
                cached = sum(await asyncio.gather(*probes, *mates))
            else:
                cached = sum([await probe for probe in probes])
        preemptions = int(metrics.counts.preemptions.child("").value)
        engine.engine.check()
    finally:
        await engine.close()
    if variant.must_preempt and not preemptions:
        raise ConfigError(f"{variant.name}: nothing was preempted; the pool is too large for this model's blocks")
    if variant.rounds > 1 and not cached:
        raise ConfigError(f"{variant.name}: nothing was found in the prefix cache")
    return f"{cached} prompt tokens cached, {preemptions} preemptions"


def _probes(vocab: int, variant: Variant, effort: Effort) -> Iterator[Request]:
    dice = random.Random(7)
    for length in effort.lengths:
        ids = tuple(dice.randrange(3, vocab) for _ in range(length))
        for params in (GREEDY, SEEDED):
            sampling = msgspec.structs.replace(params, max_tokens=effort.gen, **variant.params)
            yield Request(id=f"probe-{length}-{params.seed}", prompt=TokenPrompt(ids), sampling=sampling)


def _mates(vocab: int, n: int, effort: Effort) -> Iterator[Request]:
    """Other people's requests: random lengths, all of them sampled."""
    dice = random.Random(8)
    for number in range(n):
        ids = tuple(dice.randrange(3, vocab) for _ in range(dice.randrange(3, effort.mate_prompt)))
        sampling = SamplingParams(temperature=1.0, seed=10_000 + number, max_tokens=dice.randrange(2, effort.mate_gen), ignore_eos=True)
        yield Request(id=f"mate-{number}", prompt=TokenPrompt(ids), sampling=sampling)


async def _ask(engine: AsyncEngine, request: Request) -> int:
    """Serves one request to its end; returns its cached prompt tokens."""
    cached = 0
    async for event in engine.stream(request):
        if isinstance(event, Started):
            cached = event.n_cached
        elif isinstance(event, Failed):
            raise from_info(event.error)
    return cached
