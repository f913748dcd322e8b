"""How long a context, how many KV blocks: settings and the model's numbers turned into a Capacity."""

from __future__ import annotations

from msgspec import Struct

from camshaft import _native
from camshaft.config import EngineConfig, parse_bytes
from camshaft.errors import ConfigError
from camshaft.formats.spec import ModelSpec
from camshaft.runners.kv_layout import KVLayout, blocks_for
from camshaft.types import Capacity

DEFAULT_MODEL_LEN = 4096
MAX_INT8_HEAD_DIM = 512  # beyond it the kernels' sums of products could overflow


class Sizing(Struct, frozen=True):
    capacity: Capacity
    block_bytes: int

    @property
    def kv_bytes(self) -> int:
        return self.capacity.n_blocks * self.block_bytes


def size(spec: ModelSpec, config: EngineConfig, layout: KVLayout, free_bytes: int) -> Sizing:
    """Raises ConfigError where the settings leave no room for a single block of each group, or ask for more than the model's context."""
    if config.block_size not in (16, 32, 64, 128):
        raise ConfigError(f"--block-size is 16, 32, 64 or 128, not {config.block_size}")
    max_model_len = model_len(spec, config)
    if config.kv_dtype == "int8" and spec.head_dim > MAX_INT8_HEAD_DIM:
        raise ConfigError(f"--kv-dtype int8 takes heads of at most {MAX_INT8_HEAD_DIM}, this model's have {spec.head_dim}")
    layer_bytes = _native.kv_layer_bytes(config.kv_dtype, config.block_size, spec.n_kv_heads, spec.head_dim)
    block_bytes = layout.layers_per_block * layer_bytes
    # Block 0 is nobody's: a table entry of 0 says that a token's KV is gone.
    wanted = 1 + config.max_num_seqs * blocks_for(layout.groups, max_model_len, config.block_size, config.max_num_batched_tokens)
    if config.kv_memory.strip().lower() == "auto":
        n_blocks = min(wanted, free_bytes // 4 // block_bytes)
    else:
        # More than every sequence can hold is not in vain: it keeps prefixes.
        n_blocks = parse_bytes(config.kv_memory, "kv_memory") // block_bytes
    least = 1 + len(layout.groups)
    if n_blocks < least:
        need = -(-least * block_bytes // (1 << 20))
        raise ConfigError(f"--kv-memory {config.kv_memory} holds {n_blocks} KV blocks of {block_bytes:,} bytes; give it {need}M or more")
    capacity = Capacity(
        vocab_size=spec.vocab_size,
        max_model_len=max_model_len,
        block_size=config.block_size,
        n_blocks=min(n_blocks, (1 << 31) - 1),
        groups=layout.groups,
        max_slots=config.max_num_seqs,
        max_tokens=config.max_num_batched_tokens,
    )
    return Sizing(capacity, block_bytes)


def model_len(spec: ModelSpec, config: EngineConfig) -> int:
    """Tokens, prompt and answer together. Raises ConfigError for more than the model was made for."""
    if config.max_model_len > spec.max_position:
        raise ConfigError(f"--max-model-len {config.max_model_len} is more than the model's context of {spec.max_position}")
    return config.max_model_len or min(DEFAULT_MODEL_LEN, spec.max_position)
