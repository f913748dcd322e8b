"""GGUF models: descriptions, names, layouts, and refusals that name what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camshaft.errors import ModelError
from camshaft.formats import open_model
from camshaft.formats.model import half_split_order
from gguf_writer import VOCAB_SIZE, Encoded, Tiny, q4_1, q8_0, tiny_metadata, tiny_model, tiny_tensors, write_gguf
from hf_writer import half_split

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3"]


def changed(path: Path, tiny: Tiny, metadata: dict[str, Any] = {}, tensors: dict[str, Any] = {}) -> Path:
    """A tiny model with metadata and tensors replaced; None removes."""
    values = {k: v for k, v in {**tiny_metadata(tiny), **metadata}.items() if v is not None}
    arrays = {k: v for k, v in {**tiny_tensors(tiny), **tensors}.items() if v is not None}
    return write_gguf(path / "m.gguf", values, arrays)


@pytest.mark.parametrize("family", FAMILIES)
def test_description_has_the_sizes_of_the_file(family: str, tmp_path: Path) -> None:
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny(family)))
    spec = model.spec
    assert (spec.family, spec.name, spec.vocab_size) == (family, f"tiny {family}", VOCAB_SIZE)
    assert (spec.n_layers, spec.d_model, spec.n_heads, spec.n_kv_heads, spec.head_dim, spec.d_ff) == (2, 64, 4, 2, 16, 96)
    assert (spec.max_position, spec.rope.theta, spec.rope.dim, spec.tied_head) == (512, 10000.0, 16, True)
    assert spec.norm_eps == pytest.approx(1e-5)
    assert (spec.qkv_bias, spec.qk_norm, spec.post_norms) == (family == "qwen2", family in ("qwen3", "gemma3"), family == "gemma3")
    assert (model.license, model.about.kind) == ("apache-2.0", "GGUF v3")
    assert model.chat_template is not None
    assert model.generation.eos_ids == (0, 2)


def test_a_files_name_cannot_write_to_the_terminal(tmp_path: Path) -> None:
    names = {"general.name": "a\x1b[2J\nb" + "c" * 10_000, "general.license": "\x07mit"}
    model = open_model(changed(tmp_path, Tiny(), names))
    assert model.spec.name == "a[2Jb" + "c" * 193
    assert model.license == "mit"


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_has_a_canonical_name(family: str, tied: bool, tmp_path: Path) -> None:
    tiny = Tiny(family, n_layers=1, tied=tied)
    model = open_model(tiny_model(tmp_path / "m.gguf", tiny))
    parts = {"attn_norm", "q", "k", "v", "o", "ffn_norm", "gate", "up", "down"}
    parts |= {"q_bias", "k_bias", "v_bias"} if family == "qwen2" else set()
    parts |= {"q_norm", "k_norm"} if family in ("qwen3", "gemma3") else set()
    parts |= {"post_attn_norm", "post_ffn_norm"} if family == "gemma3" else set()
    assert set(model.names()) == {"embed", "final_norm"} | (set() if tied else {"head"}) | {f"layers.0.{p}" for p in parts}
    assert model.tensor_bytes == sum(t.nbytes for t in tiny_tensors(tiny).values())  # type: ignore[union-attr]
    assert model.file_bytes == (tmp_path / "m.gguf").stat().st_size


def test_matrices_are_views_of_the_file_with_their_type(tmp_path: Path) -> None:
    tiny = Tiny("qwen3", weights="Q4_1")
    tensor = open_model(tiny_model(tmp_path / "m.gguf", tiny)).tensor("layers.1.down")
    stored = tiny_tensors(tiny)["blk.1.ffn_down.weight"]
    assert isinstance(stored, Encoded)
    assert (tensor.type, tensor.rows, tensor.cols, tensor.row_order) == (3, 64, 96, None)
    assert tensor.data.tobytes() == stored.data


def test_rows_of_llamas_q_and_k_are_put_in_half_split_order(tmp_path: Path) -> None:
    tiny = Tiny("llama")
    model = open_model(tiny_model(tmp_path / "m.gguf", tiny))
    for name in ("q", "k"):
        tensor = model.tensor(f"layers.0.{name}")
        stored = tiny_tensors(tiny)[f"blk.0.attn_{name}.weight"]
        assert tensor.row_order is not None
        assert tensor.row_order.dtype == np.int32
        values = tensor.data.view(np.float32).reshape(tensor.rows, tensor.cols)
        np.testing.assert_array_equal(values[tensor.row_order], half_split(stored, tiny.head_dim))  # type: ignore[arg-type]
    assert model.tensor("layers.0.v").row_order is None
    assert open_model(tiny_model(tmp_path / "q.gguf", Tiny("qwen2"))).tensor("layers.0.q").row_order is None


def test_half_split_order_leaves_what_does_not_turn() -> None:
    assert half_split_order(2, 6, 4).tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


def test_biases_of_llamas_q_follow_their_rows(tmp_path: Path) -> None:
    tiny = Tiny("llama", n_layers=1)
    biases = {"q": np.arange(64), "k": np.arange(32), "v": np.arange(32)}
    model = open_model(changed(tmp_path, tiny, tensors={f"blk.0.attn_{k}.bias": v.astype(np.float32) for k, v in biases.items()}))
    assert model.spec.qkv_bias
    assert model.vector("layers.0.q_bias")[:16].tolist() == [*range(0, 16, 2), *range(1, 16, 2)]
    assert model.vector("layers.0.v_bias").tolist() == list(range(32))


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
def test_vectors_are_float32_from_any_float_type(kind: str, tmp_path: Path) -> None:
    values = np.array([1.0, -2.5, 0.125, 96.0] * 16, np.float32)
    stored = {
        "F32": values, "F16": values.astype(np.float16),
        "BF16": Encoded(30, (64,), (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()),
    }  # fmt: skip
    vector = open_model(changed(tmp_path, Tiny(), tensors={"output_norm.weight": stored[kind]})).vector("final_norm")
    assert vector.dtype == np.float32
    np.testing.assert_array_equal(vector, values)


def test_quantised_norm_is_refused_by_name(tmp_path: Path) -> None:
    norm = Encoded(8, (64,), q8_0(np.ones((1, 64), np.float32)).data)
    model = open_model(changed(tmp_path, Tiny(), tensors={"output_norm.weight": norm}))
    with pytest.raises(ModelError, match=r"output_norm.weight.*Q8_0"):
        model.vector("final_norm")


def test_gemmas_norms_are_taken_as_they_are(tmp_path: Path) -> None:
    tiny = Tiny("gemma3")
    np.testing.assert_array_equal(
        open_model(tiny_model(tmp_path / "m.gguf", tiny)).vector("final_norm"), tiny_tensors(tiny)["output_norm.weight"]
    )


def test_gemmas_layers_are_five_local_to_one_global(tmp_path: Path) -> None:
    spec = open_model(tiny_model(tmp_path / "m.gguf", Tiny("gemma3", n_layers=7))).spec
    assert [spec.is_windowed(i) for i in range(7)] == [True] * 5 + [False, True]
    assert (spec.window, spec.act, spec.embed_scale, spec.attn_scale, spec.post_norms) == (16, "gelu_tanh", 8.0, None, True)
    assert spec.rope_local is not None
    assert (spec.rope_local.theta, spec.rope_local.scaling) == (10000.0, "none")


def test_gemmas_global_scaling_leaves_local_layers_alone(tmp_path: Path) -> None:
    more = {"gemma3.rope.scaling.type": "linear", "gemma3.rope.scaling.factor": 8.0, "gemma3.rope.freq_base": 1e6}
    spec = open_model(changed(tmp_path, Tiny("gemma3"), more)).spec
    assert (spec.rope.theta, spec.rope.scaling, spec.rope.factor) == (1e6, "linear", 8.0)
    assert spec.rope_local is not None
    assert (spec.rope_local.theta, spec.rope_local.scaling, spec.rope_local.factor) == (10000.0, "none", 1.0)


def test_gemmas_largest_size_has_its_own_attention_scale(tmp_path: Path) -> None:
    tiny = Tiny("gemma3", n_layers=62, d_model=32, n_heads=2, n_kv_heads=1, head_dim=2, d_ff=32)
    assert open_model(tiny_model(tmp_path / "m.gguf", tiny)).spec.attn_scale == pytest.approx(16**-0.5)


def test_window_of_a_llama_file_holds_for_every_layer(tmp_path: Path) -> None:
    spec = open_model(tiny_model(tmp_path / "m.gguf", Tiny("llama", window=24))).spec
    assert (spec.window, spec.is_windowed(0), spec.is_windowed(1)) == (24, True, True)


def test_llama31_factors_are_in_the_description(tmp_path: Path) -> None:
    factors = np.linspace(1, 8, 8).astype(np.float32)
    model = open_model(changed(tmp_path, Tiny(), tensors={"rope_freqs.weight": factors}))
    np.testing.assert_array_equal(model.rope_factors, factors)  # type: ignore[arg-type]
    assert model.spec.rope.freq_factors == tuple(factors.tolist())
    assert open_model(tiny_model(tmp_path / "n.gguf")).rope_factors is None


def test_linear_scaling_in_the_old_spelling(tmp_path: Path) -> None:
    spec = open_model(changed(tmp_path, Tiny(), {"llama.rope.scale_linear": 4.0})).spec
    assert (spec.rope.scaling, spec.rope.factor) == ("linear", 4.0)


def test_numbers_repeated_for_every_layer_are_one_number(tmp_path: Path) -> None:
    more = {"llama.attention.head_count_kv": np.array([2, 2], np.int32), "llama.feed_forward_length": np.array([96, 96], np.uint32)}
    assert open_model(changed(tmp_path, Tiny(), more)).spec.n_kv_heads == 2
    with pytest.raises(ModelError, match="head_count_kv' differs between layers"):
        open_model(changed(tmp_path, Tiny(), {"llama.attention.head_count_kv": np.array([2, 1], np.int32)}))


def test_widened_types_are_said(tmp_path: Path) -> None:
    matrix = Encoded(20, (64, 96), bytes(64 * 96 // 32 * 18))
    model = open_model(changed(tmp_path, Tiny(), tensors={"blk.0.ffn_down.weight": matrix}))
    assert model.warnings == ("IQ4_NL weights are widened to 8 bits in memory",)
    assert open_model(tiny_model(tmp_path / "n.gguf")).warnings == ()


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "architecture": ({"general.architecture": "falcon"}, {}, "'falcon' is not supported; supported: llama, qwen2, qwen3, gemma3"),
    "no architecture": ({"general.architecture": None}, {}, "lacks 'general.architecture'"),
    "experts": ({"llama.expert_count": 8}, {}, "mixture of experts"),
    "part of a model": ({"split.count": 3}, {}, "one of 3 parts"),
    "yarn": ({"llama.rope.scaling.type": "yarn"}, {}, "'yarn' is not supported"),
    "values unlike keys": ({"llama.attention.value_length": 8}, {}, "values of another size"),
    "missing layer count": ({"llama.block_count": None}, {}, "lacks 'llama.block_count'"),
    "layers without end": ({"llama.block_count": 1 << 31}, {}, "n_layers is 2,147,483,648"),
    "no heads": ({"llama.attention.head_count": 0}, {}, "head_count is 0"),
    "heads that do not divide": ({"llama.attention.head_count_kv": 3}, {}, "do not divide"),
    "epsilon NaN": ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, {}, "epsilon is nan"),
    "theta NaN": ({"llama.rope.freq_base": float("nan")}, {}, "rotary base is nan"),
    "odd rotary size": ({"llama.rope.dimension_count": 7}, {}, "rotary embedding over 7"),
    "rotary size over the head": ({"llama.rope.dimension_count": 32}, {}, "rotary embedding over 32"),
    "scaling factor 0": ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}, {}, "scaling factor is 0"),
    "missing tensor": ({}, {"blk.1.ffn_up.weight": None}, "'blk.1.ffn_up.weight' is missing"),
    "missing layer": ({"llama.block_count": 3}, {}, "'blk.2.attn_norm.weight' is missing"),
    "extra layer": ({"llama.block_count": 1}, {}, r"'blk.1.attn_norm.weight' is not part of a llama model"),
    "no embedding": ({}, {"token_embd.weight": None}, "'token_embd.weight' is missing"),
    "wrong shape": ({}, {"blk.0.ffn_up.weight": np.zeros((96, 32), np.float32)}, r"'blk.0.ffn_up.weight' has shape \[96, 32\].*\[96, 64\]"),
    "matrix as vector": ({}, {"output_norm.weight": np.zeros((8, 8), np.float32)}, r"'output_norm.weight' has shape \[8, 8\]"),
    "unknown tensor": ({}, {"blk.0.ffn_gate_exps.weight": np.zeros(4, np.float32)}, "'blk.0.ffn_gate_exps.weight' is not part"),
    "more tokens than rows": ({"tokenizer.ggml.tokens": ["x"] * 265}, {}, "the vocabulary has 265 tokens, but the embedding only 264 rows"),
    "output bias": ({}, {"blk.0.attn_output.bias": np.zeros(64, np.float32)}, "'blk.0.attn_output.bias' is not part"),
    "rotary factors of zero": ({}, {"rope_freqs.weight": np.zeros(8, np.float32)}, "frequency factor is not a positive"),
    "too few rotary factors": ({}, {"rope_freqs.weight": np.ones(4, np.float32)}, "4 rotary frequency factors for 8"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_model_that_cannot_run_is_refused_by_cause(case: str, tmp_path: Path) -> None:
    metadata, tensors, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        open_model(changed(tmp_path, Tiny(), metadata, tensors))


def test_gemmas_layers_as_a_list(tmp_path: Path) -> None:
    key = "gemma3.attention.sliding_window_pattern"
    assert open_model(changed(tmp_path, Tiny("gemma3"), {key: 2})).spec.windowed == (True, False)
    assert open_model(changed(tmp_path, Tiny("gemma3"), {key: np.array([0, 1], np.uint8)})).spec.windowed == (False, True)
    with pytest.raises(ModelError, match="lists 3 layers of 2"):
        open_model(changed(tmp_path, Tiny("gemma3"), {key: np.zeros(3, np.uint8)}))


@pytest.mark.parametrize("value", [0, 1 << 31])
def test_gemma_needs_a_sane_pattern_and_a_window(value: int, tmp_path: Path) -> None:
    if value == 0:
        with pytest.raises(ModelError, match="sliding_window_pattern is 0"):
            open_model(changed(tmp_path, Tiny("gemma3"), {"gemma3.attention.sliding_window_pattern": 0}))
    with pytest.raises(ModelError, match="sliding"):
        open_model(changed(tmp_path, Tiny("gemma3"), {"gemma3.attention.sliding_window": value}))


def test_asking_for_what_is_not_there(tmp_path: Path) -> None:
    model = open_model(tiny_model(tmp_path / "m.gguf"))
    for call, message in (
        (lambda: model.tensor("head"), "no tensor 'head'"),
        (lambda: model.tensor("final_norm"), "is not a matrix"),
        (lambda: model.vector("embed"), "is not a vector"),
    ):
        with pytest.raises(ModelError, match=message):
            call()
    with pytest.raises(ModelError, match="does not exist"):
        open_model(tmp_path / "absent.gguf")
    (tmp_path / "x.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match="give the folder"):
        open_model(tmp_path / "x.safetensors")


def test_hash_is_of_the_content(tmp_path: Path) -> None:
    one, two = tiny_model(tmp_path / "a.gguf"), tiny_model(tmp_path / "b.gguf")
    other = tiny_model(tmp_path / "c.gguf", Tiny(seed=1))
    assert open_model(one).hash == open_model(two).hash != open_model(other).hash


def test_the_writers_rounding_is_close() -> None:
    """The encoders that other tests lean on: decoded by hand, within half a step."""
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    blocks = np.frombuffer(q8_0(x).data, np.uint8).reshape(-1, 34)
    decoded = blocks[:, :2].copy().view(np.float16).astype(np.float32) * blocks[:, 2:].copy().view(np.int8)
    assert np.abs(decoded.reshape(4, 64) - x).max() < 0.02
    blocks = np.frombuffer(q4_1(x).data, np.uint8).reshape(-1, 20)
    scale, low = blocks[:, :2].copy().view(np.float16).astype(np.float32), blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    assert np.abs((scale * nibbles + low).reshape(4, 64) - x).max() < 0.25
