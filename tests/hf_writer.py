"""Writes Hugging Face folders for tests: safetensors files, right or wrong, and the tiny models of gguf_writer in that form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gguf_writer import VOCAB_SIZE, Encoded, Tiny, tiny_tensors

_DTYPES = {"float32": "F32", "float16": "F16"}
_HF = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}  # fmt: skip
_GEMMA = _HF | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def safetensors_bytes(tensors: Mapping[str, NDArray[np.generic] | Encoded]) -> bytes:
    """The content of a safetensors file. Encoded tensors must be bf16."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        raw = tensor.data if isinstance(tensor, Encoded) else tensor.tobytes()
        dtype = "BF16" if isinstance(tensor, Encoded) else _DTYPES[tensor.dtype.name]
        header[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": [at, at + len(raw)]}
        body.append(raw)
        at += len(raw)
    return with_header(header, b"".join(body))


def with_header(header: object, body: bytes = b"") -> bytes:
    """Any header, right or wrong, before any body."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + body


def tiny_config(tiny: Tiny) -> dict[str, Any]:
    """config.json of a tiny model, as transformers 4 writes it."""
    config: dict[str, Any] = {
        "model_type": {"gemma3": "gemma3_text"}.get(tiny.family, tiny.family),
        "vocab_size": VOCAB_SIZE,
        "hidden_size": tiny.d_model,
        "intermediate_size": tiny.d_ff,
        "num_hidden_layers": tiny.n_layers,
        "num_attention_heads": tiny.n_heads,
        "num_key_value_heads": tiny.n_kv_heads,
        "head_dim": tiny.head_dim,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": tiny.context,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": tiny.tied,
        "eos_token_id": 2,
    }
    if tiny.family == "gemma3":
        del config["hidden_act"]
        config |= {"hidden_activation": "gelu_pytorch_tanh", "sliding_window": tiny.window or 16, "query_pre_attn_scalar": tiny.head_dim}
        config |= {"rope_local_base_freq": 10000.0}
    return config


def hf_tensors(tiny: Tiny) -> dict[str, NDArray[np.generic] | Encoded]:
    """The tensors of `tiny_tensors` under Hugging Face's names and in its conventions: half-split Q and K, Gemma's norms less one."""
    out: dict[str, NDArray[np.generic] | Encoded] = {}
    for name, tensor in tiny_tensors(tiny).items():
        stem, _, kind = name.rpartition(".")
        part = stem.rpartition(".")[2]
        if tiny.family == "llama" and part in ("attn_q", "attn_k"):
            tensor = half_split(tensor, tiny.head_dim)
        if tiny.family == "gemma3" and part.endswith("norm"):
            tensor = tensor - np.float32(1)
        out[_hf_name(stem, tiny.family) + "." + kind] = tensor
    return out


def half_split(x: NDArray[np.generic], head_dim: int) -> NDArray[np.generic]:
    """Rows [heads, pairs, 2] of a neighbour-paired projection as [heads, 2, pairs], spelled out row by row."""
    rows = []
    for head in range(len(x) // head_dim):
        rows += [x[head * head_dim + 2 * i] for i in range(head_dim // 2)]
        rows += [x[head * head_dim + 2 * i + 1] for i in range(head_dim // 2)]
    return np.stack(rows)


def tiny_folder(folder: Path, tiny: Tiny | None = None) -> Path:
    """Writes the same model as `gguf_writer.tiny_model` does, as a folder without a tokenizer."""
    tiny = tiny or Tiny()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(tiny_config(tiny)))
    (folder / "model.safetensors").write_bytes(safetensors_bytes(hf_tensors(tiny)))
    return folder


def _hf_name(stem: str, family: str) -> str:
    top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
    if stem in top:
        return top[stem]
    _, i, part = stem.split(".")
    return f"model.layers.{i}.{(_GEMMA if family == 'gemma3' else _HF)[part]}"
