"""Settings become a capacity, or a refusal that says what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from camshaft.config import EngineConfig
from camshaft.errors import ConfigError
from camshaft.formats.spec import ModelSpec, RopeSpec
from camshaft.runners.kv_layout import kv_layout
from camshaft.runners.memory import _cgroup_bytes, free_bytes
from camshaft.runners.sizing import size

SPEC = ModelSpec(
    family="llama", name="t", vocab_size=32, n_layers=4, d_model=24, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=40, norm_eps=1e-5,
    max_position=8192, rope=RopeSpec(10_000.0, 8),
)  # fmt: skip
LAYOUT = kv_layout([None] * 4)
BLOCK_BYTES = 4 * 32 * (2 * 2 * 8 * 2)  # layers x tokens x (K and V of 2 heads of 8 in bf16)
PLENTY = 1 << 40


def test_auto_takes_what_all_contexts_need_and_block_zero() -> None:
    sizing = size(SPEC, EngineConfig(max_num_seqs=3), LAYOUT, PLENTY)
    assert sizing.block_bytes == BLOCK_BYTES
    assert sizing.capacity.n_blocks == 1 + 3 * 4096 // 32
    assert sizing.kv_bytes == sizing.capacity.n_blocks * BLOCK_BYTES


def test_auto_takes_a_quarter_of_free_memory_at_most() -> None:
    sizing = size(SPEC, EngineConfig(), LAYOUT, 4 * 100 * BLOCK_BYTES)
    assert sizing.capacity.n_blocks == 100


def test_a_stated_budget_is_used_whole() -> None:
    assert size(SPEC, EngineConfig(kv_memory="1M"), LAYOUT, 0).capacity.n_blocks == (1 << 20) // BLOCK_BYTES
    f32 = size(SPEC, EngineConfig(kv_memory="1M", kv_dtype="f32"), LAYOUT, 0)
    assert f32.capacity.n_blocks == (1 << 20) // (2 * BLOCK_BYTES)


def test_int8_holds_nearly_twice_the_tokens() -> None:
    smollm2 = ModelSpec(**{f: getattr(SPEC, f) for f in SPEC.__struct_fields__} | {"n_kv_heads": 3, "head_dim": 64})
    bf16, int8 = (size(smollm2, EngineConfig(kv_dtype=kind, kv_memory="1G"), LAYOUT, 0).capacity.n_blocks for kind in ("bf16", "int8"))
    assert int8 / bf16 > 1.93
    wide = ModelSpec(**{f: getattr(SPEC, f) for f in SPEC.__struct_fields__} | {"head_dim": 576})
    with pytest.raises(ConfigError, match="--kv-dtype int8 takes heads of at most 512, this model's have 576"):
        size(wide, EngineConfig(kv_dtype="int8"), LAYOUT, PLENTY)


def test_the_context_is_4096_or_the_models_unless_asked() -> None:
    def length(asked: int, max_position: int) -> int:
        spec = ModelSpec(**{f: getattr(SPEC, f) for f in SPEC.__struct_fields__} | {"max_position": max_position})
        return size(spec, EngineConfig(max_model_len=asked), LAYOUT, PLENTY).capacity.max_model_len

    assert (length(0, 8192), length(0, 512), length(6000, 8192)) == (4096, 512, 6000)
    with pytest.raises(ConfigError, match="--max-model-len 9000 is more than the model's context of 8192"):
        length(9000, 8192)


def test_a_budget_too_small_for_a_block_of_each_group_says_how_much_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"--kv-memory 12K holds 1 KV blocks .* give it 1M or more"):
        size(SPEC, EngineConfig(kv_memory="12K"), LAYOUT, PLENTY)


def test_a_block_size_that_kernels_do_not_know_is_refused() -> None:
    with pytest.raises(ConfigError, match="--block-size is 16, 32, 64 or 128, not 48"):
        size(SPEC, EngineConfig(block_size=48), LAYOUT, PLENTY)


def test_capacity_repeats_the_limits_of_the_settings() -> None:
    capacity = size(SPEC, EngineConfig(max_num_seqs=7, max_num_batched_tokens=99, block_size=64), LAYOUT, PLENTY).capacity
    assert (capacity.max_slots, capacity.max_tokens, capacity.block_size, capacity.vocab_size) == (7, 99, 64, 32)
    assert capacity.groups == LAYOUT.groups


def test_a_control_groups_limit_bounds_free_memory(tmp_path: Path) -> None:
    assert _cgroup_bytes(tmp_path) == 1 << 62  # no such control group
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert _cgroup_bytes(tmp_path) == 1 << 62
    (tmp_path / "memory.max").write_text("5000\n")
    assert _cgroup_bytes(tmp_path) == 4000
    assert 0 < free_bytes() < 1 << 50
