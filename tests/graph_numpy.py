"""A second executor of `camshaft.models.Graph`: numpy, one whole sequence, no cache, in float64 unless told otherwise.

It is the oracle that the native runner is held against, and shows that a graph is bound to no executor.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from camshaft.formats.spec import RopeSpec
from camshaft.models.graph import (
    Add,
    Attention,
    Embed,
    GeluMul,
    Graph,
    Head,
    HeadNorm,
    Linear,
    Node,
    RmsNorm,
    Rope,
    SiluMul,
    Softcap,
    TakeRows,
)

Array = NDArray[np.floating]
Weights = Callable[[str], Array]  # by name: a matrix [outputs, inputs] or a vector


def logits(graph: Graph, weights: Weights, ids: list[int], dtype: DTypeLike = np.float64) -> Array:
    """[len(ids), vocab]: what the network says after each token of one sequence."""
    values: list[Array] = []
    for node in graph.nodes:
        values.append(_compute(node, values, weights, np.asarray(ids), dtype))
    return values[-1]


def _compute(node: Node, values: list[Array], weights: Weights, ids: NDArray[np.int64], dtype: DTypeLike) -> Array:
    def weight(name: str) -> Array:
        return weights(name).astype(dtype)

    x = values[node.inputs[0]] if node.inputs else np.empty(0)
    match node:
        case Embed():
            return weight(node.weight)[ids] * np.asarray(node.scale, dtype)
        case RmsNorm():
            return rms_norm(x, weight(node.weight), node.eps)
        case HeadNorm():
            return rms_norm(x.reshape(-1, node.n_heads, node.head_dim), weight(node.weight), node.eps).reshape(x.shape)
        case Linear():
            y = x @ weight(node.weight).T
            return y if node.bias is None else y + weight(node.bias)
        case Rope():
            return rotate(x.reshape(len(x), node.n_heads, node.head_dim), inv_freq(node.rope)).reshape(x.shape)
        case Attention():
            return attend(node, x, values[node.k], values[node.v])
        case SiluMul():
            return x / (1 + np.exp(-x)) * values[node.up]
        case GeluMul():
            return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))) * values[node.up]
        case Add():
            return values[node.a] + values[node.b]
        case TakeRows():
            return x
        case Head():
            return x @ weight(node.weight).T
        case Softcap():
            return node.cap * np.tanh(x / node.cap)


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + eps) * weight


def inv_freq(rope: RopeSpec) -> NDArray[np.float64]:
    """Written from the definition, on its own: radians by which one position turns each pair, [dim / 2]."""
    out = []
    for i in range(rope.dim // 2):
        f = rope.theta ** (-2 * i / rope.dim) / (rope.freq_factors[i] if rope.freq_factors else 1.0)
        if rope.scaling == "linear":
            f /= rope.factor
        elif rope.scaling == "llama3":
            turns = rope.original_max_position * f / (2 * np.pi)  # full turns over the original context
            if turns <= rope.low_freq_factor:
                f /= rope.factor
            elif turns < rope.high_freq_factor:
                share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
                f = (1 - share) * f / rope.factor + share * f
        out.append(f)
    return np.array(out)


def rotate(x: Array, freq: NDArray[np.float64]) -> Array:
    """x [T, H, head_dim]; token t stands at position t."""
    half = len(freq)
    angle = np.arange(len(x))[:, None, None] * freq  # [T, 1, half]
    c, s = np.cos(angle).astype(x.dtype), np.sin(angle).astype(x.dtype)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * c - b * s, b * c + a * s, rest], axis=-1)


def attend(node: Attention, q: Array, k: Array, v: Array) -> Array:
    t, group = len(q), node.n_heads // node.n_kv_heads
    q = q.reshape(t, node.n_heads, node.head_dim)
    k = np.repeat(k.reshape(t, node.n_kv_heads, node.head_dim), group, axis=1)
    v = np.repeat(v.reshape(t, node.n_kv_heads, node.head_dim), group, axis=1)
    scores = np.einsum("qhd,khd->hqk", q, k) * np.asarray(node.scale, q.dtype)
    if node.softcap is not None:
        scores = node.softcap * np.tanh(scores / node.softcap)
    behind = np.arange(t)[:, None] - np.arange(t)[None, :]  # how far token k lies behind token q
    seen = (behind >= 0) & (behind < (node.window or t))
    scores = np.where(seen, scores, -np.inf)
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", p, v).reshape(t, -1)
