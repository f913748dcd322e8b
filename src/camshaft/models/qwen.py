"""Qwen2: Llama's network with biases on Q, K and V. Qwen3: without them, and each head of Q and K normalised before it is turned."""

from __future__ import annotations

from camshaft.formats.spec import ModelSpec
from camshaft.models.graph import Graph, Net, Value


def qwen(spec: ModelSpec) -> Graph:
    net = Net(spec)
    x = net.embed("embed")  # [T, D]
    for i in range(spec.n_layers):
        w = f"layers.{i}."
        a, x = net.narrow(i, _attention(net, spec, x, i), x)
        x = net.add(x, net.linear(a, w + "o", spec.d_model))
        h = net.rms_norm(x, w + "ffn_norm")
        gate = net.linear(h, w + "gate", spec.d_ff)  # [T, d_ff]
        up = net.linear(h, w + "up", spec.d_ff)
        x = net.add(x, net.linear(net.silu_mul(gate, up), w + "down", spec.d_model))
    x = net.rms_norm(x, "final_norm")  # [R, D]
    net.softcap(net.head(x, "embed" if spec.tied_head else "head"), spec.logit_softcap)  # [R, vocab]
    return net.graph()


def _attention(net: Net, spec: ModelSpec, x: Value, i: int) -> Value:
    """[T, D] -> [T, n_heads * head_dim], before the output projection."""
    w = f"layers.{i}."
    bias = {p: f"{w}{p}_bias" if spec.qkv_bias else None for p in "qkv"}
    d_q, d_kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    h = net.rms_norm(x, w + "attn_norm")
    q = net.linear(h, w + "q", d_q, bias=bias["q"])  # [T, d_q]
    k = net.linear(h, w + "k", d_kv, bias=bias["k"])  # [T, d_kv]
    v = net.linear(h, w + "v", d_kv, bias=bias["v"])
    if spec.qk_norm:
        q, k = net.head_norm(q, w + "q_norm"), net.head_norm(k, w + "k_norm")
    return net.attention(net.rope(q, spec.rope), net.rope(k, spec.rope), v, i)
