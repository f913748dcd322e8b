"""Llama 2 and 3, Mistral, SmolLM2, TinyLlama: pre-norm, grouped-query attention, a gated feed-forward.

Mistral's window and Llama 3's frequencies are numbers of the spec, not other networks.
"""

from __future__ import annotations

from camshaft.formats.spec import ModelSpec
from camshaft.models.graph import Graph, Net


def llama(spec: ModelSpec) -> Graph:
    net = Net(spec)
    d_q, d_kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    x = net.embed("embed")  # [T, D]
    for i in range(spec.n_layers):
        w = f"layers.{i}."
        bias = {p: f"{w}{p}_bias" if spec.qkv_bias else None for p in "qkv"}

        h = net.rms_norm(x, w + "attn_norm")
        q = net.linear(h, w + "q", d_q, bias=bias["q"])  # [T, d_q]
        k = net.linear(h, w + "k", d_kv, bias=bias["k"])  # [T, d_kv]
        v = net.linear(h, w + "v", d_kv, bias=bias["v"])
        a = net.attention(net.rope(q, spec.rope), net.rope(k, spec.rope), v, i)  # [T, d_q]
        a, x = net.narrow(i, a, x)
        x = net.add(x, net.linear(a, w + "o", spec.d_model))

        h = net.rms_norm(x, w + "ffn_norm")
        gate = net.linear(h, w + "gate", spec.d_ff)  # [T, d_ff]
        up = net.linear(h, w + "up", spec.d_ff)
        x = net.add(x, net.linear(net.silu_mul(gate, up), w + "down", spec.d_model))
    x = net.rms_norm(x, "final_norm")  # [R, D]
    net.softcap(net.head(x, "embed" if spec.tied_head else "head"), spec.logit_softcap)  # [R, vocab]
    return net.graph()
