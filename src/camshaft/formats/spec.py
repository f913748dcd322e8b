"""ModelSpec: one description of an architecture, whatever file it came from."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Family = Literal["llama", "qwen2", "qwen3", "gemma3"]


class RopeSpec(Struct, frozen=True):
    """Rotary embedding over the first `dim` of each head, always in the half-split (NeoX) pairing: element i turns with i + dim/2.

    Files that pair neighbours (GGUF's llama) have the rows of Q and K put in order at load, so that one layout is left.
    `scaling` is none, linear (positions divided by `factor`) or llama3 (Llama 3.1's smooth scaling by wavelength).
    """

    theta: float
    dim: int
    scaling: Literal["none", "linear", "llama3"] = "none"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position: int = 8192
    freq_factors: tuple[float, ...] = ()  # divisors of the dim/2 inverse frequencies, where a file lists them ready-made


class ModelSpec(Struct, frozen=True):
    """Everything about the network that is not a weight. Sizes in elements."""

    family: Family
    name: str
    vocab_size: int
    n_layers: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_ff: int
    norm_eps: float
    max_position: int
    rope: RopeSpec
    rope_local: RopeSpec | None = None  # for the layers with a window, where they differ (gemma3)
    window: int | None = None  # tokens that a windowed layer sees, the query's own included
    windowed: tuple[bool, ...] = ()  # per layer; empty: every layer is windowed if `window` is set, else none
    tied_head: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False  # gemma3: a norm after attention and after the feed-forward, before each residual add
    act: Literal["silu", "gelu_tanh"] = "silu"
    embed_scale: float = 1.0
    attn_scale: float | None = None  # None: head_dim ** -0.5
    logit_softcap: float | None = None
    attn_softcap: float | None = None

    def is_windowed(self, layer: int) -> bool:
        """Whether this layer forgets what lies behind the window."""
        if self.window is None:
            return False
        return self.windowed[layer] if self.windowed else True
