"""One set of tensor names. What each kind of file calls them is a table here, and so is what a model must have.

Canonical: embed, final_norm, head, and for layer i `layers.{i}.` and one of attn_norm q k v o q_bias k_bias v_bias q_norm k_norm
post_attn_norm ffn_norm gate up down post_ffn_norm. Matrices are [outputs, inputs].
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from camshaft.errors import ModelError
from camshaft.formats.spec import Family, ModelSpec
from camshaft.formats.tensors import TensorInfo

_GGUF_TOP = {"embed": "token_embd.weight", "final_norm": "output_norm.weight", "head": "output.weight"}
_GGUF_LAYER = {
    "attn_norm": "attn_norm.weight", "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight", "o": "attn_output.weight",
    "q_bias": "attn_q.bias", "k_bias": "attn_k.bias", "v_bias": "attn_v.bias", "q_norm": "attn_q_norm.weight",
    "k_norm": "attn_k_norm.weight", "post_attn_norm": "post_attention_norm.weight", "ffn_norm": "ffn_norm.weight",
    "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight", "post_ffn_norm": "post_ffw_norm.weight",
}  # fmt: skip

_HF_TOP = {"embed": "model.embed_tokens.weight", "final_norm": "model.norm.weight", "head": "lm_head.weight"}
_HF_LAYER = {
    "attn_norm": "input_layernorm.weight", "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight", "v": "self_attn.v_proj.weight",
    "o": "self_attn.o_proj.weight", "q_bias": "self_attn.q_proj.bias", "k_bias": "self_attn.k_proj.bias", "v_bias": "self_attn.v_proj.bias",
    "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight", "ffn_norm": "post_attention_layernorm.weight",
    "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
}  # fmt: skip
# With norms on both sides of each sublayer, the one called "post attention" really stands after the attention.
_HF_LAYER_POST_NORMS = _HF_LAYER | {
    "post_attn_norm": "post_attention_layernorm.weight",
    "ffn_norm": "pre_feedforward_layernorm.weight",
    "post_ffn_norm": "post_feedforward_layernorm.weight",
}

# Where a multimodal checkpoint keeps its language model, and what becomes of the name.
_HF_PREFIXES = (("model.language_model.", "model."), ("language_model.model.", "model."), ("language_model.lm_head.", "lm_head."))
# Tensors that carry nothing we use: tables that are computed, and the parts of a multimodal checkpoint that see or hear.
GGUF_IGNORED = re.compile(r"rope_freqs\.weight|blk\.\d{1,4}\.attn_rot_embd\.weight")
HF_IGNORED = re.compile(r".*\.rotary_emb\.inv_freq|(?:model\.)?(?:vision_tower|multi_modal_projector|audio_tower)\..*")


def expected(spec: ModelSpec) -> dict[str, tuple[int, ...]]:
    """Every tensor that a model of this description has, canonical name -> shape."""
    d, hd = spec.d_model, spec.head_dim
    n_q, n_kv = spec.n_heads * hd, spec.n_kv_heads * hd
    layer: dict[str, tuple[int, ...]] = {
        "attn_norm": (d,), "q": (n_q, d), "k": (n_kv, d), "v": (n_kv, d), "o": (d, n_q),
        "ffn_norm": (d,), "gate": (spec.d_ff, d), "up": (spec.d_ff, d), "down": (d, spec.d_ff),
    }  # fmt: skip
    if spec.qkv_bias:
        layer |= {"q_bias": (n_q,), "k_bias": (n_kv,), "v_bias": (n_kv,)}
    if spec.qk_norm:
        layer |= {"q_norm": (hd,), "k_norm": (hd,)}
    if spec.post_norms:
        layer |= {"post_attn_norm": (d,), "post_ffn_norm": (d,)}
    shapes: dict[str, tuple[int, ...]] = {"embed": (spec.vocab_size, d), "final_norm": (d,)}
    if not spec.tied_head:
        shapes["head"] = (spec.vocab_size, d)
    for i in range(spec.n_layers):
        shapes |= {f"layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes


def gguf_name(name: str) -> str:
    """`layers.3.q` -> `blk.3.attn_q.weight`."""
    top = _GGUF_TOP.get(name)
    if top:
        return top
    _, i, part = name.split(".")
    return f"blk.{i}.{_GGUF_LAYER[part]}"


def hf_name(name: str, family: Family) -> str:
    """`layers.3.q` -> `model.layers.3.self_attn.q_proj.weight`."""
    top = _HF_TOP.get(name)
    if top:
        return top
    _, i, part = name.split(".")
    table = _HF_LAYER_POST_NORMS if family == "gemma3" else _HF_LAYER
    return f"model.layers.{i}.{table[part]}"


def hf_plain(name: str) -> str:
    """A Hugging Face name without the prefix that a multimodal checkpoint puts before its language model."""
    for prefix, plain in _HF_PREFIXES:
        if name.startswith(prefix):
            return plain + name[len(prefix) :]
    return name


def place(
    spec: ModelSpec, foreign: Mapping[str, str], found: Mapping[str, TensorInfo], *, ignored: re.Pattern[str], where: str
) -> dict[str, TensorInfo]:
    """Canonical name -> the file's tensor. `foreign` gives the file's name for each canonical one; `ignored` matches names to pass over.

    Raises ModelError naming the tensor that is missing, of the wrong shape, or of no use to this family.
    """
    placed: dict[str, TensorInfo] = {}
    for name, shape in expected(spec).items():
        info = found.get(foreign[name])
        if info is None:
            raise ModelError(f"{where}: tensor {foreign[name]!r} is missing; the file is incomplete or not a {spec.family} model")
        if info.shape != shape:
            raise ModelError(f"{where}: tensor {foreign[name]!r} has shape {list(info.shape)}; the model's description says {list(shape)}")
        placed[name] = info
    used = {foreign[name] for name in placed}
    for name in found:
        if name not in used and not ignored.fullmatch(name):
            raise ModelError(f"{where}: tensor {name!r} is not part of a {spec.family} model as supported here")
    return placed
