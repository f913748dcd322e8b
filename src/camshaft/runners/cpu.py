"""The CPU runner: a model file lowered to one native program, and steps handed to it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from msgspec import Struct

from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.errors import ConfigError, EngineFault
from camshaft.formats.cache import cache_dir
from camshaft.formats.model import ModelFile
from camshaft.formats.source import verify
from camshaft.formats.spec import ModelSpec
from camshaft.models import build
from camshaft.models.graph import Attention
from camshaft.runners.kv_layout import KVLayout, kv_layout
from camshaft.runners.lower import lower
from camshaft.runners.memory import free_bytes
from camshaft.runners.numerics import numerics_id
from camshaft.runners.pack_cache import PackCache, key_of
from camshaft.runners.pack_file import Packed
from camshaft.runners.sizing import size
from camshaft.runners.weights import Weights
from camshaft.types import Capacity, Mask, SamplingParams, StepPlan, StepResult


class Loaded(Struct, frozen=True):
    """What loading came to. Bytes and seconds; `forms` counts matrices by packed form."""

    isa: str
    threads: int
    tensor_bytes: int  # as in the file
    packed_bytes: int
    forms: dict[str, int]
    kv_bytes: int  # reserved; pages cost nothing until written
    resident_bytes: int  # estimate once the pool is full: weights, KV, activations
    mapped: bool  # all weights come from packs of an earlier start
    load_s: float


class CpuRunner:
    """Implements types.Runner. `isa` forces an instruction set; empty takes CAMSHAFT_ISA, else the best that this machine has."""

    invariant = True

    def __init__(self, model: ModelFile, config: EngineConfig, *, isa: str = "") -> None:
        """Raises ModelError for weights that do not fit the network and ConfigError for settings that leave no room."""
        began = time.perf_counter()
        isa = _choose_isa(isa)
        threads = config.threads or _native.usable_cores()
        graph = build(model.spec)
        layout = kv_layout([node.window for node in graph.nodes if isinstance(node, Attention)])
        sizing = size(model.spec, config, layout, free_bytes())
        self._capacity = capacity = sizing.capacity
        builder = _native.Builder(
            isa=isa,
            threads=threads,
            compute=config.compute,
            max_tokens=capacity.max_tokens,
            max_slots=capacity.max_slots,
            vocab_size=capacity.vocab_size,
            pin_threads=config.pin_threads,
        )
        packs = PackCache(cache_dir() / "packed", int(config.weight_cache_gb * 1e9))
        known = model.known_hash()
        pack = packs.find(key_of(known, config.quantize), threads) if known is not None else None
        weights = Weights(model, builder, config.quantize, capacity.max_model_len, pack)
        with ThreadPoolExecutor(1) as beside:
            # Reading the whole file for its hash takes as long as packing it; side by side they cost the longer of the two.
            hashing = beside.submit(lambda: known or model.hash)
            _declare_kv(builder, model.spec, capacity, layout, config.kv_dtype)
            activation_floats = lower(graph, builder, weights, layout)
            packed = builder.weight_bytes()
            self._program: _native.Program | None = builder.build()
            model_hash = hashing.result()
        verify(model.path, model_hash)
        self.numerics_id = numerics_id(model_hash, config, isa)
        self._writing = packs.keep(key_of(model_hash, config.quantize), _packed(self._program, weights)) if weights.n_packed else None
        self.loaded = Loaded(
            isa=isa,
            threads=threads,
            tensor_bytes=model.tensor_bytes,
            packed_bytes=packed,
            forms=weights.forms,
            kv_bytes=sizing.kv_bytes,
            resident_bytes=packed + sizing.kv_bytes + 4 * activation_floats * capacity.max_tokens,
            mapped=weights.n_packed == 0,
            load_s=time.perf_counter() - began,
        )

    def capacity(self) -> Capacity:
        return self._capacity

    def open(self, slot: int, params: SamplingParams, choice: int, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        self.program.open(slot, params, choice, np.array(prompt_ids, np.int32), np.array(output_ids, np.int32))

    def release(self, slot: int) -> None:
        self.program.release(slot)

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        return self.program.step(plan, dict(masks))

    def close(self) -> None:
        """Gives back weights and KV; idempotent. Packed weights that are being written get a moment to be finished."""
        if self._writing is not None:
            self._writing.end()
        self._writing = None
        self._program = None

    @property
    def program(self) -> _native.Program:
        """The native program, for measurements and tests. Raises EngineFault once the runner is closed."""
        if self._program is None:
            raise EngineFault("the runner is closed")
        return self._program


def _choose_isa(asked: str) -> str:
    isas = _native.available_isas()
    isa = asked or os.environ.get("CAMSHAFT_ISA", "") or isas[0]
    if isa not in isas:
        raise ConfigError(f"instruction set {isa!r} is not on this machine or in this build; CAMSHAFT_ISA may be {', '.join(isas)}")
    return isa


def _packed(program: _native.Program, weights: Weights) -> list[Packed]:
    return [Packed(name, m.form, m.rows, m.cols, program.packed(m.id).data) for name, m in weights.matrices.items()]


def _declare_kv(builder: _native.Builder, spec: ModelSpec, capacity: Capacity, layout: KVLayout, dtype: str) -> None:
    builder.kv_cache(
        block_size=capacity.block_size,
        n_blocks=capacity.n_blocks,
        dtype=dtype,
        n_layers_per_block=layout.layers_per_block,
        n_groups=len(layout.groups),
        n_kv_heads=spec.n_kv_heads,
        head_dim=spec.head_dim,
    )
