"""What lowering fuses, and that the fused program computes what the graph says (with numpy standing in for the native nodes)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import pytest

import graph_numpy
from camshaft.formats.open import open_model
from camshaft.formats.spec import ModelSpec
from camshaft.models import build
from camshaft.models.graph import Attention, Graph, Net
from camshaft.runners.kv_layout import kv_layout
from camshaft.runners.lower import lower
from gguf_writer import Tiny, tiny_model
from model_weights import float_weights
from numpy_builder import NumpyBuilder, NumpyNames

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
IDS = [5, 200, 7, 7, 90, 3, 41, 263, 18, 77, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]


def lowered(graph: Graph, weights: graph_numpy.Weights) -> NumpyBuilder:
    names = NumpyNames(weights)
    builder = NumpyBuilder(names, graph.spec.n_kv_heads, graph.spec.head_dim)
    layout = kv_layout([node.window for node in graph.nodes if isinstance(node, Attention)])
    builder.floats_per_token = lower(graph, cast(Any, builder), names, layout)
    return builder


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_the_lowered_program_computes_the_graph(tmp_path: Path, family: str, tied: bool) -> None:
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny(family=family, n_layers=3, window=16 if family == "gemma3" else 0, tied=tied)))
    spec = msgspec.structs.replace(model.spec, logit_softcap=3.0, attn_softcap=2.0)
    graph = build(spec)
    want = graph_numpy.logits(graph, float_weights(model), IDS)
    got = lowered(graph, float_weights(model)).logits(IDS)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_a_llama_layer_is_ten_nodes(tmp_path: Path) -> None:
    builder = lowered_tiny(tmp_path, "llama")
    layer = ["rms_norm", "linear3", "rope", "rope", "attention", "linear1+", "rms_norm", "linear2", "silu_mul", "linear1+"]
    last = [*layer[:5], "take_rows", "take_rows", *layer[5:]]  # rows that nobody samples end with the last keys and values
    assert builder.calls == ["embed", *layer, *last, "rms_norm", "head"]


def test_gemma_adds_nothing_straight_from_a_projection(tmp_path: Path) -> None:
    calls = Counter(lowered_tiny(tmp_path, "gemma3").calls)
    assert calls["linear1+"] == 0
    assert calls["linear1"] == calls["add"] == 4
    assert calls["head_norm"] == 4
    assert calls["gelu_mul"] == 2


def test_buffers_are_reused_from_layer_to_layer(tmp_path: Path) -> None:
    two, six = lowered_tiny(tmp_path, "llama", 2), lowered_tiny(tmp_path, "llama", 6)
    assert two.widths == six.widths
    # The residual and the norm's output, q|k|v, gate|up, their product; the attention's output is as wide as the norm's here. The third of
    # that width is for the rows that are taken.
    assert sorted(two.widths) == [64, 64, 64, 96, 128, 192]
    assert two.floats_per_token == sum(two.widths)


def test_layers_write_their_kv_where_the_layout_says(tmp_path: Path) -> None:
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny(family="gemma3", n_layers=6)))
    builder = lowered(build(model.spec), float_weights(model))
    assert sorted(builder.kv_places) == sorted((place.group, place.index) for place in kv_layout([16] * 5 + [None]).places)


def test_a_projection_is_not_folded_into_a_residual_that_is_read_again(tmp_path: Path) -> None:
    def parallel(net: Net, spec: ModelSpec) -> None:
        x = net.embed("embed")
        y = net.add(x, net.linear(x, "layers.0.o", spec.d_model))  # x is the projection's own input
        z = net.add(net.linear(y, "layers.1.o", spec.d_model), y)
        attention_and_head(net, spec, net.add(z, y))  # y is read again

    builder = check(tmp_path, parallel)
    assert "linear1+" not in builder.calls


def test_a_residual_on_either_side_of_the_add_is_folded(tmp_path: Path) -> None:
    def mirrored(net: Net, spec: ModelSpec) -> None:
        x = net.embed("embed")
        h = net.rms_norm(x, "layers.0.attn_norm")
        attention_and_head(net, spec, net.add(net.linear(h, "layers.0.o", spec.d_model), x))

    assert check(tmp_path, mirrored).calls[:3] == ["embed", "rms_norm", "linear1+"]


def test_what_the_native_nodes_cannot_say_is_refused(tmp_path: Path) -> None:
    def rope_and_more(net: Net, spec: ModelSpec) -> None:
        x = net.embed("embed")
        net.add(net.rope(x, spec.rope), x)

    def gate_elsewhere(net: Net, spec: ModelSpec) -> None:
        x = net.embed("embed")
        net.silu_mul(net.linear(x, "layers.0.o", spec.d_model), net.rms_norm(x, "final_norm"))

    def part_of_a_buffer(net: Net, spec: ModelSpec) -> None:
        x = net.embed("embed")
        a, b = (net.linear(x, f"layers.{i}.o", spec.d_model) for i in range(2))
        net.add(net.rms_norm(a, "final_norm"), b)

    for network, words in (
        (rope_and_more, "in place"),
        (gate_elsewhere, "projections of one value"),
        (part_of_a_buffer, "shares its buffer"),
    ):
        with pytest.raises(ValueError, match=words):
            check(tmp_path, network)


def attention_and_head(net: Net, spec: ModelSpec, x: int) -> None:
    d_q, d_kv = spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    q, k, v = net.linear(x, "layers.0.q", d_q), net.linear(x, "layers.0.k", d_kv), net.linear(x, "layers.0.v", d_kv)
    net.head(net.take_rows(net.attention(q, k, v, 0)), "embed")


def check(tmp_path: Path, network: Any) -> NumpyBuilder:
    """Lowers a network made by hand over a tiny llama's weights and compares it with the oracle."""
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny()))
    net = Net(model.spec)
    network(net, model.spec)
    graph = net.graph()
    names = NumpyNames(float_weights(model))
    builder = NumpyBuilder(names, model.spec.n_kv_heads, model.spec.head_dim)
    lower(graph, cast(Any, builder), names, kv_layout([None]))
    np.testing.assert_allclose(builder.logits(IDS), graph_numpy.logits(graph, float_weights(model), IDS), atol=1e-12)
    return builder


def lowered_tiny(tmp_path: Path, family: str, n_layers: int = 2) -> NumpyBuilder:
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny(family=family, n_layers=n_layers)))
    return lowered(build(model.spec), float_weights(model))
