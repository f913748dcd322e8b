"""Makes the tiny random models of tests/golden/models and the logits that transformers computes for them.

Run once, by hand, when a family is added; what it writes is stored in the repository, so that the tests need no torch:

    python -m venv /tmp/golden && /tmp/golden/bin/pip install torch transformers --extra-index-url https://download.pytorch.org/whl/cpu
    /tmp/golden/bin/python tests/golden/make_models.py [NAME ...]

Each model is a Hugging Face folder (config.json, model.safetensors) and logits.npz: for sequence i, `ids_i` int32 [n] and `logits_i`
float32 [n, vocab], computed by transformers on the whole sequence at once in float32 with its plain ("eager") attention. Two models are
stored in bf16, which is exact for them since their weights are drawn in bf16. Made with torch 2.13 and transformers 5.24.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import save_file

FOLDER = Path(__file__).parent / "models"
VOCAB = 128
# Longer than every window below, and the first one longer than an attention span of 64 and three blocks of 16.
LENGTHS = (90, 41, 5)
COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "initializer_range": 0.12,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@dataclass(frozen=True)
class Recipe:
    name: str
    config: str  # class names in transformers
    model: str
    seed: int
    dtype: torch.dtype = torch.float32
    changes: dict[str, Any] = field(default_factory=dict)


LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
QWEN3_HEADS = {"head_dim": 32, "num_attention_heads": 3, "num_key_value_heads": 1}  # heads wider together than the model
RECIPES = (
    Recipe("llama", "LlamaConfig", "LlamaForCausalLM", 11),
    Recipe("llama3", "LlamaConfig", "LlamaForCausalLM", 12, torch.bfloat16, {"rope_parameters": LLAMA3_ROPE, "tie_word_embeddings": True}),
    Recipe("mistral", "MistralConfig", "MistralForCausalLM", 13, changes={"sliding_window": 24, "num_key_value_heads": 1}),
    Recipe("qwen2", "Qwen2Config", "Qwen2ForCausalLM", 14, changes={"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    Recipe("qwen3", "Qwen3Config", "Qwen3ForCausalLM", 15, torch.bfloat16, QWEN3_HEADS),
    Recipe(
        "gemma3",
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        16,
        changes={
            "num_hidden_layers": 3,
            "hidden_size": 48,
            "intermediate_size": 80,
            "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            "sliding_window": 20,
            "query_pre_attn_scalar": 24,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            },
        },
    ),
)


def randomise_flat_weights(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Norm weights and biases start as ones and zeros, with which a mix-up of two of them would go unseen."""
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            spread = 0.3 if name.endswith("bias") else 0.2
            weight.data += spread * torch.randn(weight.shape, generator=generator)


def make(recipe: Recipe) -> None:
    torch.manual_seed(recipe.seed)
    config = getattr(transformers, recipe.config)(**(COMMON | recipe.changes), attn_implementation="eager")
    model = getattr(transformers, recipe.model)(config).eval()
    generator = torch.Generator().manual_seed(recipe.seed)
    randomise_flat_weights(model, generator)
    for weight in model.parameters():  # not model.to(dtype), which would round the rotary frequencies as well
        weight.data = weight.data.to(recipe.dtype).to(torch.float32)

    folder = FOLDER / recipe.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state = {k: v.to(recipe.dtype).contiguous() for k, v in model.state_dict().items()}
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [recipe.model]
    config.dtype = recipe.dtype
    config.save_pretrained(folder)

    arrays: dict[str, np.ndarray] = {}
    for i, n in enumerate(LENGTHS):
        ids = torch.randint(3, VOCAB, (1, n), generator=generator)
        with torch.no_grad():
            logits = model(ids).logits[0]
        arrays[f"ids_{i}"] = ids[0].numpy().astype(np.int32)
        arrays[f"logits_{i}"] = logits.numpy().astype(np.float32)
    np.savez(folder / "logits.npz", **arrays)
    size = sum(f.stat().st_size for f in folder.iterdir())
    sys.stdout.write(f"{recipe.name}: {size / 1000:.0f} kB, logits std {arrays['logits_0'].std():.2f}\n")


if __name__ == "__main__":
    wanted = sys.argv[1:]
    for recipe in RECIPES:
        if not wanted or recipe.name in wanted:
            make(recipe)
