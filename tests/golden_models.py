"""The stored tiny models of tests/golden/models, with the logits that transformers computed, and the same models as GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from camshaft.formats.model import ModelFile, half_split_order
from camshaft.formats.names import gguf_name
from camshaft.formats.open import open_model
from camshaft.formats.spec import ModelSpec
from gguf_writer import Encoded, Value, q4_1, q8_0, write_gguf
from graph_numpy import inv_freq
from model_weights import float_weights

FOLDER = Path(__file__).parent / "golden" / "models"
NAMES = ("llama", "llama3", "mistral", "qwen2", "qwen3", "gemma3")


class Golden(NamedTuple):
    """One sequence and transformers' float32 logits after each of its tokens [n, vocab]."""

    ids: list[int]
    logits: NDArray[np.float32]


def golden_model(name: str) -> ModelFile:
    return open_model(FOLDER / name)


def goldens(name: str) -> list[Golden]:
    with np.load(FOLDER / name / "logits.npz") as stored:
        return [Golden(stored[f"ids_{i}"].tolist(), stored[f"logits_{i}"]) for i in range(len(stored) // 2)]


def as_gguf(model: ModelFile, out: Path, weights: str = "F32") -> ModelFile:
    """The model written as the GGUF converters of the field write it, matrices in `weights` (F32, Q8_0 or Q4_1).

    Llama's Q and K rows go into neighbour-paired order, and llama3's frequencies become a tensor of divisors.
    """
    spec, get = model.spec, float_weights(model)
    tensors: dict[str, NDArray[np.generic] | Encoded] = {}
    for name in model.names():
        values = get(name).astype(np.float32)
        part = name.rpartition(".")[2]
        if spec.family == "llama" and part in ("q", "k"):
            n_heads = spec.n_heads if part == "q" else spec.n_kv_heads
            paired = np.empty_like(values)
            paired[half_split_order(n_heads, spec.head_dim, spec.rope.dim)] = values
            values = paired
        if part == "q_norm" and spec.attn_scale is not None:
            # The format has no key for an unusual attention scale; Q's norm can carry it.
            values = values * np.float32(spec.attn_scale * spec.head_dim**0.5)
        packs = values.ndim == 2 and weights != "F32" and values.shape[1] % 32 == 0
        tensors[gguf_name(name)] = {"Q8_0": q8_0, "Q4_1": q4_1}[weights](values) if packs else values
    if spec.rope.scaling == "llama3":
        plain = spec.rope.theta ** (-2 * np.arange(spec.rope.dim // 2) / spec.rope.dim)
        tensors["rope_freqs.weight"] = (plain / inv_freq(spec.rope)).astype(np.float32)
    return open_model(write_gguf(out, _metadata(spec), tensors))


def _metadata(spec: ModelSpec) -> dict[str, Value]:
    a = spec.family
    metadata: dict[str, Value] = {
        "general.architecture": a,
        f"{a}.block_count": spec.n_layers,
        f"{a}.context_length": spec.max_position,
        f"{a}.embedding_length": spec.d_model,
        f"{a}.feed_forward_length": spec.d_ff,
        f"{a}.attention.head_count": spec.n_heads,
        f"{a}.attention.head_count_kv": spec.n_kv_heads,
        f"{a}.attention.key_length": spec.head_dim,
        f"{a}.attention.value_length": spec.head_dim,
        f"{a}.attention.layer_norm_rms_epsilon": spec.norm_eps,
        f"{a}.rope.freq_base": spec.rope.theta,
        f"{a}.rope.dimension_count": spec.rope.dim,
    }
    if spec.rope.scaling == "linear":
        metadata |= {f"{a}.rope.scaling.type": "linear", f"{a}.rope.scaling.factor": spec.rope.factor}
    if spec.window:
        metadata[f"{a}.attention.sliding_window"] = spec.window
    if a == "gemma3":
        metadata["gemma3.attention.sliding_window_pattern"] = spec.windowed.index(False) + 1
    return metadata
