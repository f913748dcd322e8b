"""The verbs check what they join, and a family says the network that its spec describes."""

from __future__ import annotations

from typing import TypeVar, get_args

import msgspec
import pytest

from camshaft.formats.spec import Family, ModelSpec, RopeSpec
from camshaft.models import FAMILIES, build
from camshaft.models.graph import Attention, Graph, HeadNorm, Linear, Net, RmsNorm, Rope, Softcap, TakeRows

T = TypeVar("T")

SPEC = ModelSpec(
    family="llama", name="t", vocab_size=32, n_layers=3, d_model=24, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=40, norm_eps=1e-5,
    max_position=64, rope=RopeSpec(10_000.0, 8),
)  # fmt: skip
GEMMA = msgspec.structs.replace(
    SPEC, family="gemma3", window=16, windowed=(True, True, False), rope_local=RopeSpec(100.0, 8), qk_norm=True, post_norms=True,
    tied_head=True, embed_scale=5.0, attn_scale=0.5, logit_softcap=30.0, attn_softcap=50.0,
)  # fmt: skip


def of_kind(graph: Graph, kind: type[T]) -> list[T]:
    return [node for node in graph.nodes if isinstance(node, kind)]


@pytest.mark.parametrize("family", get_args(Family))
def test_every_family_has_a_network_that_reads_only_earlier_values(family: Family) -> None:
    graph = build(msgspec.structs.replace(GEMMA, family=family))
    for index, node in enumerate(graph.nodes):
        assert all(0 <= value < index for value in node.inputs)
    assert len(graph.widths) == len(graph.nodes)
    assert graph.widths[-1] == SPEC.vocab_size
    # What the last attention gave and the residual: after it nothing looks at rows that nobody wants.
    last = max(index for index, node in enumerate(graph.nodes) if isinstance(node, Attention))
    assert [index for index, node in enumerate(graph.nodes) if isinstance(node, TakeRows)] == [last + 1, last + 2]


def test_the_registry_knows_exactly_the_families_of_a_spec() -> None:
    assert set(FAMILIES) == set(get_args(Family))


def test_a_graph_is_plain_data() -> None:
    graph = build(SPEC)
    assert graph == build(SPEC)
    assert hash(graph.nodes) == hash(build(SPEC).nodes)
    with pytest.raises(AttributeError):
        graph.nodes[0].scale = 2.0  # type: ignore[misc, union-attr]


def test_a_window_is_said_for_windowed_layers_alone() -> None:
    assert [n.window for n in of_kind(build(GEMMA), Attention)] == [16, 16, None]
    mistral = msgspec.structs.replace(SPEC, window=20)
    assert [n.window for n in of_kind(build(mistral), Attention)] == [20, 20, 20]
    assert [n.window for n in of_kind(build(SPEC), Attention)] == [None] * 3


def test_gemma_turns_local_layers_by_their_own_base() -> None:
    thetas = [n.rope.theta for n in of_kind(build(GEMMA), Rope)]
    assert thetas == [100.0] * 4 + [10_000.0] * 2  # q and k of each layer


def test_attention_scale_and_caps_come_from_the_spec() -> None:
    assert of_kind(build(SPEC), Attention)[0].scale == 8**-0.5
    gemma = build(GEMMA)
    assert {(n.scale, n.softcap) for n in of_kind(gemma, Attention)} == {(0.5, 50.0)}
    assert [n.cap for n in of_kind(gemma, Softcap)] == [30.0]
    assert of_kind(build(SPEC), Softcap) == []


def test_biases_and_head_norms_follow_the_spec() -> None:
    qwen2 = build(msgspec.structs.replace(SPEC, family="qwen2", qkv_bias=True))
    assert [n.bias for n in of_kind(qwen2, Linear)][:4] == ["layers.0.q_bias", "layers.0.k_bias", "layers.0.v_bias", None]
    qwen3 = build(msgspec.structs.replace(SPEC, family="qwen3", qk_norm=True))
    assert [n.weight for n in of_kind(qwen3, HeadNorm)][:2] == ["layers.0.q_norm", "layers.0.k_norm"]
    assert all(n.bias is None for n in of_kind(build(SPEC), Linear))


def test_gemma_has_a_norm_on_both_sides_of_each_half() -> None:
    names = [n.weight for n in of_kind(build(GEMMA), RmsNorm)][:4]
    assert names == ["layers.0.attn_norm", "layers.0.post_attn_norm", "layers.0.ffn_norm", "layers.0.post_ffn_norm"]


def test_verbs_refuse_what_does_not_fit() -> None:
    net = Net(SPEC)
    x = net.embed("embed")
    narrow = net.linear(x, "a", 10)
    with pytest.raises(ValueError, match="widths differ: 24 and 10"):
        net.add(x, narrow)
    with pytest.raises(ValueError, match="not a whole number of heads"):
        net.rope(narrow, SPEC.rope)
    q = net.linear(x, "q", 32)
    with pytest.raises(ValueError, match="layer 0: q, k and v must have 4, 2 and 2 heads"):
        net.attention(q, q, q, 0)
