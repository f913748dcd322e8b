"""Gemma 3: a norm before and after each half of a layer, Q and K norm, local layers with a window and a rope base of their own.

The residual add cannot be folded into a projection here, since a norm stands between them.
"""

from __future__ import annotations

from camshaft.formats.spec import ModelSpec
from camshaft.models.graph import Graph, Net, Value


def gemma3(spec: ModelSpec) -> Graph:
    net = Net(spec)
    x = net.embed("embed")  # [T, D], times sqrt(D) by the spec's embed_scale
    for i in range(spec.n_layers):
        w = f"layers.{i}."
        a, x = net.narrow(i, _attention(net, spec, x, i), x)
        o = net.linear(a, w + "o", spec.d_model)
        x = net.add(x, net.rms_norm(o, w + "post_attn_norm"))
        h = net.rms_norm(x, w + "ffn_norm")
        gate = net.linear(h, w + "gate", spec.d_ff)  # [T, d_ff]
        up = net.linear(h, w + "up", spec.d_ff)
        down = net.linear(net.gelu_mul(gate, up), w + "down", spec.d_model)
        x = net.add(x, net.rms_norm(down, w + "post_ffn_norm"))
    x = net.rms_norm(x, "final_norm")  # [R, D]
    net.softcap(net.head(x, "embed" if spec.tied_head else "head"), spec.logit_softcap)  # [R, vocab]
    return net.graph()


def _attention(net: Net, spec: ModelSpec, x: Value, i: int) -> Value:
    """[T, D] -> [T, n_heads * head_dim], before the output projection."""
    w = f"layers.{i}."
    rope = spec.rope_local if spec.rope_local is not None and spec.is_windowed(i) else spec.rope
    h = net.rms_norm(x, w + "attn_norm")
    q = net.linear(h, w + "q", spec.n_heads * spec.head_dim)
    k = net.linear(h, w + "k", spec.n_kv_heads * spec.head_dim)
    v = net.linear(h, w + "v", spec.n_kv_heads * spec.head_dim)
    q = net.rope(net.head_norm(q, w + "q_norm"), rope)
    k = net.rope(net.head_norm(k, w + "k_norm"), rope)
    return net.attention(q, k, v, i)
