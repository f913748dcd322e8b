"""config.json of a Hugging Face folder as a ModelSpec. Reads what transformers 4 and 5 write, which differ in how they say RoPE."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from camshaft.errors import ModelError
from camshaft.formats.limits import check_spec
from camshaft.formats.spec import Family, ModelSpec, RopeSpec

FAMILIES: dict[str, Family] = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3", "gemma3": "gemma3",
}  # fmt: skip
_MISTRAL_WINDOW = 4096  # what transformers takes where a mistral config does not say
_ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}


class RopeConfig(Struct, frozen=True):
    """`rope_parameters` (version 5) or `rope_scaling` (version 4). Gemma 3 has one for each kind of layer in version 5."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: float | None = None
    factor: float | None = None
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None
    partial_rotary_factor: float | None = None
    full_attention: RopeConfig | None = None
    sliding_attention: RopeConfig | None = None


class HfConfig(Struct, frozen=True):
    """The keys of config.json that describe the network; others are ignored."""

    model_type: str | None = None
    text_config: HfConfig | None = None
    vocab_size: int | None = None
    hidden_size: int | None = None
    intermediate_size: int | None = None
    num_hidden_layers: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    rms_norm_eps: float | None = None
    max_position_embeddings: int | None = None
    hidden_act: str | None = None
    hidden_activation: str | None = None
    tie_word_embeddings: bool | None = None
    attention_bias: bool | None = None
    rope_theta: float | None = None
    rope_scaling: RopeConfig | None = None
    rope_parameters: RopeConfig | None = None
    rope_local_base_freq: float | None = None
    sliding_window: int | UnsetType | None = UNSET
    use_sliding_window: bool | None = None
    max_window_layers: int | None = None
    layer_types: tuple[str, ...] | None = None
    sliding_window_pattern: int | None = None
    query_pre_attn_scalar: float | None = None
    final_logit_softcapping: float | None = None
    attn_logit_softcapping: float | None = None
    use_bidirectional_attention: bool | str | None = None
    quantization_config: dict[str, Any] | None = None
    eos_token_id: int | tuple[int, ...] | None = None

    def language(self) -> HfConfig:
        """The part about the language model, which a multimodal config nests."""
        return self.text_config or self


# transformers' own defaults for Gemma 3, whose published multimodal configs leave them out.
_GEMMA = HfConfig(
    vocab_size=262_208, num_attention_heads=8, num_key_value_heads=4, head_dim=256, rms_norm_eps=1e-6, max_position_embeddings=131_072,
    rope_theta=1e6, rope_local_base_freq=1e4, sliding_window=4096, sliding_window_pattern=6, query_pre_attn_scalar=256.0,
    hidden_activation="gelu_pytorch_tanh", tie_word_embeddings=True,
)  # fmt: skip
# What all of them may leave out.
_COMMON = HfConfig(hidden_act="silu", tie_word_embeddings=False, rope_theta=10_000.0, max_position_embeddings=2048, rms_norm_eps=1e-6)
_QWEN3 = msgspec.structs.replace(_COMMON, head_dim=128)


def spec_of(config: HfConfig, name: str, where: str) -> ModelSpec:
    """The description of the network. Raises ModelError for an unsupported architecture or option, naming it."""
    kind = config.model_type or config.language().model_type or ""
    family = FAMILIES.get(kind)
    if family is None:
        raise ModelError(f"{where}: model_type {kind!r} is not supported; supported: {', '.join(FAMILIES)}")
    if config.quantization_config is not None:
        method = config.quantization_config.get("quant_method", "unknown")
        raise ModelError(f"{where}: weights quantised by {method!r} are not supported; take the bf16 folder or a GGUF file")
    defaults = _GEMMA if family == "gemma3" else _QWEN3 if family == "qwen3" else _COMMON
    text = _filled(config.language(), defaults)
    if text.use_bidirectional_attention:
        raise ModelError(f"{where}: bidirectional attention is not supported")
    spec = _dense(text, family, name, where)
    check_spec(spec, where)
    spec = _gemma(text, spec, where) if family == "gemma3" else _windows(text, spec, kind, where)
    check_spec(spec, where)
    return spec


def _filled(config: HfConfig, defaults: HfConfig) -> HfConfig:
    missing = {f: getattr(defaults, f) for f in config.__struct_fields__ if getattr(config, f) is None or getattr(config, f) is UNSET}
    # A window that is given as null means none; only one that is not given takes the default.
    if config.sliding_window is None:
        missing["sliding_window"] = None
    return msgspec.structs.replace(config, **missing)


def _dense(text: HfConfig, family: Family, name: str, where: str) -> ModelSpec:
    """What all families have."""
    d_model, n_heads = _need(text.hidden_size, "hidden_size", where), _need(text.num_attention_heads, "num_attention_heads", where)
    if n_heads < 1:
        raise ModelError(f"{where}: num_attention_heads is {n_heads}")
    head_dim = text.head_dim or d_model // n_heads
    act = _ACTIVATIONS.get(text.hidden_activation or text.hidden_act or "")
    if act != ("gelu_tanh" if family == "gemma3" else "silu"):
        raise ModelError(f"{where}: activation {text.hidden_activation or text.hidden_act!r} is not supported for {family}")
    return ModelSpec(
        family=family,
        name=name,
        vocab_size=_need(text.vocab_size, "vocab_size", where),
        n_layers=_need(text.num_hidden_layers, "num_hidden_layers", where),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=text.num_key_value_heads or n_heads,
        head_dim=head_dim,
        d_ff=_need(text.intermediate_size, "intermediate_size", where),
        norm_eps=text.rms_norm_eps or 0.0,
        max_position=text.max_position_embeddings or 0,
        rope=_rope(text, head_dim, where),
        tied_head=bool(text.tie_word_embeddings),
        qkv_bias=family == "qwen2" or bool(text.attention_bias),
        qk_norm=family in ("qwen3", "gemma3"),
    )


def _gemma(text: HfConfig, spec: ModelSpec, where: str) -> ModelSpec:
    period = text.sliding_window_pattern or 0
    if period < 1:
        raise ModelError(f"{where}: sliding_window_pattern is {period}, not 1 or more")
    local = text.rope_parameters.sliding_attention if text.rope_parameters else None
    theta = (local.rope_theta if local else None) or text.rope_local_base_freq
    scalar = text.query_pre_attn_scalar or 0.0
    if not 0 < scalar < 1e6:
        raise ModelError(f"{where}: query_pre_attn_scalar is {scalar}, not a positive number")
    return msgspec.structs.replace(
        spec,
        rope_local=RopeSpec(theta=theta or 0.0, dim=spec.head_dim),
        window=text.sliding_window,
        windowed=_layer_types(text, spec, where) or tuple((i + 1) % period != 0 for i in range(spec.n_layers)),
        post_norms=True,
        act="gelu_tanh",
        embed_scale=spec.d_model**0.5,
        attn_scale=None if scalar == spec.head_dim else scalar**-0.5,
        logit_softcap=text.final_logit_softcapping,
        attn_softcap=text.attn_logit_softcapping,
    )


def _windows(text: HfConfig, spec: ModelSpec, kind: str, where: str) -> ModelSpec:
    """Mistral windows every layer; Qwen the layers from max_window_layers on, where it is told to."""
    if kind == "mistral":
        window = _MISTRAL_WINDOW if text.sliding_window is UNSET else text.sliding_window
        return msgspec.structs.replace(spec, window=window)
    if spec.family == "llama" or not text.use_sliding_window or not isinstance(text.sliding_window, int):
        return spec
    first = text.max_window_layers or 0
    windowed = _layer_types(text, spec, where) or tuple(i >= first for i in range(spec.n_layers))
    return msgspec.structs.replace(spec, window=text.sliding_window, windowed=windowed) if any(windowed) else spec


def _layer_types(text: HfConfig, spec: ModelSpec, where: str) -> tuple[bool, ...]:
    """Whether each layer has the window, where the config lists it."""
    known = {"sliding_attention": True, "full_attention": False}
    for kind in text.layer_types or ():
        if kind not in known:
            raise ModelError(f"{where}: layers of type {kind!r} are not supported; supported: {', '.join(known)}")
    return tuple(known[kind] for kind in text.layer_types or ())


def _rope(text: HfConfig, head_dim: int, where: str) -> RopeSpec:
    given = text.rope_parameters or text.rope_scaling or RopeConfig()
    given = given.full_attention or given
    theta = given.rope_theta or text.rope_theta or 0.0
    kind = given.rope_type or given.type or "default"
    if given.partial_rotary_factor not in (None, 1.0):
        raise ModelError(f"{where}: rotary embedding over a part of each head is not supported")
    if kind == "default":
        return RopeSpec(theta=theta, dim=head_dim)
    if kind == "linear":
        return RopeSpec(theta=theta, dim=head_dim, scaling="linear", factor=given.factor or 0.0)
    if kind != "llama3":
        raise ModelError(f"{where}: rotary scaling {kind!r} is not supported; supported: default, linear, llama3")
    return RopeSpec(
        theta=theta,
        dim=head_dim,
        scaling="llama3",
        factor=given.factor or 0.0,
        low_freq_factor=given.low_freq_factor or 0.0,
        high_freq_factor=given.high_freq_factor or 0.0,
        original_max_position=given.original_max_position_embeddings or 0,
    )


def _need(value: int | None, key: str, where: str) -> int:
    if value is None:
        raise ModelError(f"{where}: {key!r} is missing")
    return value
