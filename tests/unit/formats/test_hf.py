"""Hugging Face folders: the same model as its GGUF file, configs of both generations of transformers, and clear refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from camshaft.errors import ModelError
from camshaft.formats import open_model
from camshaft.formats.spec import RopeSpec
from gguf_writer import Tiny, tiny_model
from hf_writer import hf_tensors, safetensors_bytes, tiny_config, tiny_folder

FAMILIES = ["llama", "qwen2", "qwen3", "gemma3"]


def configured(folder: Path, changes: dict[str, Any], tiny: Tiny | None = None) -> Path:
    """A tiny folder with config keys replaced; None removes, Ellipsis means null."""
    tiny = tiny or Tiny()
    tiny_folder(folder, tiny)
    config = {k: v for k, v in {**tiny_config(tiny), **changes}.items() if v is not None}
    (folder / "config.json").write_text(json.dumps({k: None if v is ... else v for k, v in config.items()}))
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_and_a_gguf_file_of_one_model_look_the_same(family: str, tmp_path: Path) -> None:
    tiny = Tiny(family, tied=family != "qwen2")
    folder, file = open_model(tiny_folder(tmp_path / "hf", tiny)), open_model(tiny_model(tmp_path / "m.gguf", tiny))
    plain = {"name": "", "norm_eps": 0.0}
    assert msgspec.structs.replace(folder.spec, **plain) == msgspec.structs.replace(file.spec, **plain)
    assert folder.names() == file.names()
    for name in folder.names():
        if len(folder.info(name).shape) == 1:
            np.testing.assert_allclose(folder.vector(name), file.vector(name), atol=1e-6)
            continue
        ours, theirs = folder.tensor(name), file.tensor(name)
        assert ours.row_order is None
        rows = theirs.data.view(np.float32).reshape(theirs.rows, theirs.cols)
        rows = rows if theirs.row_order is None else rows[theirs.row_order]
        np.testing.assert_array_equal(ours.data.view(np.float32).reshape(ours.rows, ours.cols), rows)


def test_gemmas_norms_get_the_one_that_its_checkpoints_leave_out(tmp_path: Path) -> None:
    tiny = Tiny("gemma3")
    model = open_model(tiny_folder(tmp_path, tiny))
    for ours, theirs in (("final_norm", "model.norm"), ("layers.0.q_norm", "model.layers.0.self_attn.q_norm")):
        stored = hf_tensors(tiny)[f"{theirs}.weight"]
        np.testing.assert_allclose(model.vector(ours), 1 + stored, rtol=1e-6)  # type: ignore[operator]


LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
ROPES: dict[str, tuple[dict[str, Any], RopeSpec]] = {
    "version 4": ({"rope_theta": 5e5}, RopeSpec(5e5, 16)),
    "version 4, null": ({"rope_scaling": ...}, RopeSpec(1e4, 16)),
    "version 4, linear": ({"rope_scaling": {"type": "linear", "factor": 2.0}}, RopeSpec(1e4, 16, "linear", 2.0)),
    "version 4, llama3": ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, RopeSpec(1e4, 16, "llama3", 32.0, 1.0, 4.0, 8192)),
    "version 5": ({"rope_theta": None, "rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}, RopeSpec(5e5, 16)),
    "version 5, llama3": (
        {"rope_theta": None, "rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", **LLAMA3}},
        RopeSpec(5e5, 16, "llama3", 32.0, 1.0, 4.0, 8192),
    ),
    "not said": ({"rope_theta": None}, RopeSpec(1e4, 16)),
}


@pytest.mark.parametrize("case", ROPES)
def test_rotary_embedding_in_every_spelling(case: str, tmp_path: Path) -> None:
    changes, rope = ROPES[case]
    assert open_model(configured(tmp_path, changes)).spec.rope == rope


@pytest.mark.parametrize("nested", [False, True])
def test_gemma_in_the_spelling_of_version_5(nested: bool, tmp_path: Path) -> None:
    tiny = Tiny("gemma3", n_layers=3)
    ropes = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 2e4},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
    }
    changes = {
        "rope_theta": None, "rope_local_base_freq": None, "rope_parameters": ropes, "query_pre_attn_scalar": 64,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    }  # fmt: skip
    configured(tmp_path, changes, tiny)
    if nested:
        inner = json.loads((tmp_path / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": inner, "vision_config": {"depth": 3}}))
        tensors = {f"language_model.{name}": tensor for name, tensor in hf_tensors(tiny).items()}
        tensors["vision_tower.encoder.weight"] = np.zeros((2, 2), np.float32)
        (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    spec = open_model(tmp_path).spec
    assert (spec.rope, spec.rope_local) == (RopeSpec(1e6, 16, "linear", 8.0), RopeSpec(2e4, 16))
    assert (spec.windowed, spec.attn_scale, spec.family) == ((True, False, True), 0.125, "gemma3")


def test_gemmas_published_configs_leave_out_what_is_default(tmp_path: Path) -> None:
    """A config such as the 4B model's, which names five keys. Its tensors are not made; the first one missing shows how far it came."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    text["rope_scaling"] = {"factor": 8.0, "rope_type": "linear"}  # type: ignore[assignment]
    tiny_folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    with pytest.raises(
        ModelError, match=r"'model.embed_tokens.weight' has shape \[264, 64\]; the model's description says \[262208, 2560\]"
    ):
        open_model(tmp_path)


WINDOWS: dict[str, tuple[str, dict[str, Any], int | None, tuple[bool, ...]]] = {
    "mistral": ("llama", {"model_type": "mistral", "sliding_window": 24}, 24, ()),
    "mistral without": ("llama", {"model_type": "mistral", "sliding_window": ...}, None, ()),
    "mistral not said": ("llama", {"model_type": "mistral"}, 4096, ()),
    "llama has none": ("llama", {"sliding_window": 24}, None, ()),
    "qwen2 not used": ("qwen3", {"use_sliding_window": False, "sliding_window": 24, "max_window_layers": 1}, None, ()),
    "qwen2 upper layers": ("qwen3", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 1}, 24, (False, True)),
    "qwen2 no layer": ("qwen3", {"use_sliding_window": True, "sliding_window": 24, "max_window_layers": 2}, None, ()),
}


@pytest.mark.parametrize("case", WINDOWS)
def test_sliding_windows(case: str, tmp_path: Path) -> None:
    family, changes, window, windowed = WINDOWS[case]
    spec = open_model(configured(tmp_path, changes, Tiny(family))).spec
    assert (spec.window, spec.windowed) == (window, windowed)


def test_head_size_follows_from_the_width_where_it_is_not_said(tmp_path: Path) -> None:
    assert open_model(configured(tmp_path, {"head_dim": None, "num_key_value_heads": 2})).spec.head_dim == 16


def test_a_second_copy_of_a_shared_head_is_passed_over(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    tensors = hf_tensors(Tiny())
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes({**tensors, "lm_head.weight": tensors["model.embed_tokens.weight"]}))
    assert "head" not in open_model(tmp_path).names()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "architecture": ({"model_type": "phi3"}, "model_type 'phi3' is not supported; supported: llama, mistral, qwen2, qwen3"),
    "no architecture": ({"model_type": None}, "model_type '' is not supported"),
    "yarn": ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rotary scaling 'yarn' is not supported"),
    "partial rotary": ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "a part of each head"),
    "activation": ({"hidden_act": "relu"}, "activation 'relu' is not supported for llama"),
    "quantised": ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "weights quantised by 'gptq'"),
    "missing size": ({"hidden_size": None}, "'hidden_size' is missing"),
    "wrong type": ({"hidden_size": "64"}, "Expected `int | null`, got `str`"),
    "layers without end": ({"num_hidden_layers": 1 << 40}, "n_layers is"),
    "no heads": ({"num_attention_heads": 0}, "num_attention_heads is 0"),
    "untied without a head": ({"tie_word_embeddings": False}, "'lm_head.weight' is missing"),
    "biases": ({"attention_bias": True}, "'model.layers.0.self_attn.q_proj.bias' is missing"),
    "vocabulary of another size": ({"vocab_size": 300}, r"has shape \[264, 64\]; the model's description says \[300, 64\]"),
    "end token outside": ({"eos_token_id": 264}, "eos_token_id 264 is not a token of the 264"),
    "unknown layer type": ({"model_type": "qwen3", "use_sliding_window": True, "sliding_window": 8, "layer_types": ["linear"]}, "'linear'"),
    "llama3 without its terms": ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "llama3 rotary scaling needs"),
    "bidirectional": ({"use_bidirectional_attention": True}, "bidirectional"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_folder_that_cannot_run_is_refused_by_cause(case: str, tmp_path: Path) -> None:
    changes, message = REFUSED[case]
    with pytest.raises(ModelError, match=message):
        open_model(configured(tmp_path, changes))


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "Input data was truncated"), (b"{", "truncated"), (b"\xff", "not UTF-8"), (b"[]", "Expected `object`"),
     (b'{"text_config":' * 5000 + b"null" + b"}" * 5000, "nested too deeply"), (b" " * (33 << 20), "larger than")],
)  # fmt: skip
def test_a_damaged_config_is_refused_by_cause(content: bytes, message: str, tmp_path: Path) -> None:
    (tiny_folder(tmp_path) / "config.json").write_bytes(content)
    with pytest.raises(ModelError, match=message):
        open_model(tmp_path)


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        open_model(tmp_path)


def test_tokenizer_template_defaults_and_licence_are_found(tmp_path: Path) -> None:
    tiny_folder(tmp_path)
    tokenizer = {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>", "add_bos_token": True, "unk_token": None}
    templates = [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": templates}))
    generation = {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.1, "eos_token_id": [5, 2, 5], "do_sample": True}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    (tmp_path / "README.md").write_text("---\nlanguage:\n- en\nlicense: apache-2.0\ntags: []\n---\n# Model\nlicense: no\n")
    model = open_model(tmp_path)
    assert model.tokenizer_path == tmp_path / "tokenizer.json"
    assert model.about.tokenizer is not None
    assert (model.about.tokenizer.bos_token, model.about.tokenizer.eos_token, model.about.tokenizer.unk_token) == ("<s>", "</s>", None)
    assert (model.about.tokenizer.add_bos, model.about.tokenizer.add_eos) == (True, None)
    assert (model.chat_template, model.license, model.vocab) == ("plain", "apache-2.0", None)
    defaults = model.generation
    assert (defaults.temperature, defaults.top_p, defaults.top_k, defaults.min_p, defaults.repetition_penalty) == (0.6, 0.9, 20, None, 1.1)
    assert defaults.eos_ids == (2, 5)
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert open_model(tmp_path).chat_template == "from the file"


def test_hash_covers_weights_and_tokenizer(tmp_path: Path) -> None:
    before = open_model(tiny_folder(tmp_path)).hash
    assert open_model(tmp_path).hash == before
    (tmp_path / "tokenizer.json").write_text("{}")
    assert open_model(tmp_path).hash != before
