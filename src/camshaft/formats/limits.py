"""What a ModelSpec may say. A file that claims more is refused before anything is sized by it."""

from __future__ import annotations

import math

from camshaft.errors import ModelError
from camshaft.formats.spec import ModelSpec, RopeSpec

# Far above any model that this project could run, far below what would hurt to loop over.
_SIZES: dict[str, tuple[int, int]] = {
    "vocab_size": (1, 1 << 21),
    "n_layers": (1, 1024),
    "d_model": (1, 1 << 17),
    "n_heads": (1, 4096),
    "n_kv_heads": (1, 4096),
    "head_dim": (2, 1024),
    "d_ff": (1, 1 << 20),
    "max_position": (1, 1 << 30),
}


def check_spec(spec: ModelSpec, where: str) -> None:
    """Raises ModelError, naming the value, when the description cannot be of a real model."""
    sizes = {
        "vocab_size": spec.vocab_size, "n_layers": spec.n_layers, "d_model": spec.d_model, "n_heads": spec.n_heads,
        "n_kv_heads": spec.n_kv_heads, "head_dim": spec.head_dim, "d_ff": spec.d_ff, "max_position": spec.max_position,
    }  # fmt: skip
    for name, value in sizes.items():
        lo, hi = _SIZES[name]
        if not lo <= value <= hi:
            raise ModelError(f"{where}: {name} is {value:,}, not within {lo} to {hi:,}")
    if spec.n_heads % spec.n_kv_heads:
        raise ModelError(f"{where}: {spec.n_heads} heads do not divide among {spec.n_kv_heads} key-value heads")
    if spec.window is not None and not 1 <= spec.window <= 1 << 30:
        raise ModelError(f"{where}: the sliding window is {spec.window:,} tokens, not 1 or more")
    if spec.windowed and len(spec.windowed) != spec.n_layers:
        raise ModelError(f"{where}: {len(spec.windowed)} layers are named as windowed or not, but there are {spec.n_layers}")
    # Comparisons are written so that NaN fails them.
    if not 0 < spec.norm_eps < 1:
        raise ModelError(f"{where}: the norm's epsilon is {spec.norm_eps}, not between 0 and 1")
    for name, scale in (("embed_scale", spec.embed_scale), ("attn_scale", spec.attn_scale)):
        if scale is not None and not 0 < scale < 1e6:
            raise ModelError(f"{where}: {name} is {scale}, not a positive number")
    for cap in (spec.logit_softcap, spec.attn_softcap):
        if cap is not None and not 0 < cap < 1e6:
            raise ModelError(f"{where}: a softcap is {cap}, not a positive number")
    for rope in (spec.rope, spec.rope_local):
        if rope is not None:
            _check_rope(rope, spec.head_dim, where)


def _check_rope(rope: RopeSpec, head_dim: int, where: str) -> None:
    if not 2 <= rope.dim <= head_dim or rope.dim % 2:
        raise ModelError(f"{where}: rotary embedding over {rope.dim} of a head's {head_dim} elements, not over an even number of them")
    if not 1 <= rope.theta < 1e15:
        raise ModelError(f"{where}: the rotary base is {rope.theta}, not a number from 1 on")
    if not 1e-3 <= rope.factor <= 1e6:
        raise ModelError(f"{where}: the rotary scaling factor is {rope.factor}, not within 0.001 to 1,000,000")
    if rope.scaling == "llama3" and not (0 < rope.low_freq_factor < rope.high_freq_factor < 1e6 and rope.original_max_position >= 1):
        raise ModelError(f"{where}: the llama3 rotary scaling needs 0 < low_freq_factor < high_freq_factor and an original context")
    if rope.freq_factors and len(rope.freq_factors) != rope.dim // 2:
        raise ModelError(f"{where}: {len(rope.freq_factors)} rotary frequency factors for {rope.dim // 2} frequencies")
    if not all(1e-6 < f < 1e6 and math.isfinite(f) for f in rope.freq_factors):
        raise ModelError(f"{where}: a rotary frequency factor is not a positive number")
