"""Vocabularies of GGUF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from camshaft.errors import ModelError
from camshaft.formats import open_model, open_vocab
from gguf_writer import CONTROL, MERGES, VOCAB_SIZE, Tiny, tiny_metadata, tiny_model, write_gguf
from shared_data import shared_data_or_skip
from stories260k import convert


def changed(path: Path, changes: dict[str, Any]) -> Path:
    """A file with the tiny vocabulary and no tensors. None removes a key."""
    values = {**tiny_metadata(Tiny()), **{f"tokenizer.ggml.{k}": v for k, v in changes.items()}}
    return write_gguf(path / "v.gguf", {k: v for k, v in values.items() if v is not None}, {})


def test_everything_a_tokenizer_needs(tmp_path: Path) -> None:
    vocab = open_model(tiny_model(tmp_path / "m.gguf")).vocab
    assert vocab is not None
    assert (vocab.kind, vocab.pre, len(vocab.tokens), vocab.merges) == ("gpt2", "gpt-2", VOCAB_SIZE, MERGES)
    assert vocab.tokens[:3] == CONTROL
    assert vocab.tokens[3 + ord("A")] == "A"
    assert vocab.types is not None
    assert vocab.types[:4].tolist() == [3, 3, 3, 1]
    assert (vocab.bos_id, vocab.eos_id, vocab.unk_id, vocab.pad_id, vocab.eot_id) == (1, 2, 0, 2, None)
    assert (vocab.add_bos, vocab.add_eos, vocab.add_space_prefix, vocab.scores) == (False, None, None, None)


def test_turns_end_at_every_control_token_that_ends_one(tmp_path: Path) -> None:
    assert open_vocab(changed(tmp_path, {"eos_token_id": 0, "eot_token_id": 1})).end_ids == (0, 1, 2)
    # Without types nobody says that they are control tokens and not text.
    assert open_vocab(changed(tmp_path, {"eos_token_id": 0, "token_type": None})).end_ids == (0,)


def test_minus_one_means_that_there_is_no_such_token(tmp_path: Path) -> None:
    vocab = open_vocab(changed(tmp_path, {"bos_token_id": -1, "padding_token_id": 0xFFFFFFFF}))
    assert (vocab.bos_id, vocab.pad_id) == (None, None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eos_token_id": VOCAB_SIZE}, "eos_token_id is 264, but there are 264 tokens"),
        ({"bos_token_id": -2}, "bos_token_id is -2"),
        ({"token_type": np.array([1], np.int32)}, "token_type has 1 elements for 264 tokens"),
        ({"scores": np.zeros(VOCAB_SIZE + 1, np.float32)}, "scores has 265 elements"),
        ({"scores": np.full(VOCAB_SIZE, np.nan, np.float32)}, "not a finite number"),
        ({"tokens": []}, "vocabulary is empty"),
        ({"tokens": np.zeros(4, np.int32)}, "numbers where strings"),
        ({"tokens": None}, "no vocabulary"),
        ({"model": None}, "lacks 'tokenizer.ggml.model'"),
        ({"add_bos_token": 1}, "'tokenizer.ggml.add_bos_token' is not a boolean"),
    ],
)
def test_contradictions_are_refused_by_cause(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        open_vocab(changed(tmp_path, changes))


def test_real_vocabularies_open_without_tensors_whatever_their_architecture() -> None:
    folder = shared_data_or_skip() / "tokenizers"
    sizes = {}
    for path in sorted(folder.glob("*.gguf")):
        vocab = open_vocab(path)
        sizes[path.stem.removeprefix("ggml-vocab-")] = (vocab.kind, vocab.pre, len(vocab.tokens))
    assert sizes == {
        "gpt-2": ("gpt2", "gpt-2", 50257), "llama-bpe": ("gpt2", "llama-bpe", 128256), "llama-spm": ("llama", "default", 32000),
        "phi-3": ("llama", "default", 32064), "qwen2": ("gpt2", "qwen2", 151936),
    }  # fmt: skip


def test_stories260k_converts_to_a_whole_model(tmp_path: Path) -> None:
    model = open_model(convert(shared_data_or_skip() / "models" / "stories260K", tmp_path / "s.gguf"))
    assert (model.spec.d_model, model.spec.n_layers, model.spec.n_heads, model.spec.n_kv_heads, model.spec.vocab_size) == (64, 5, 8, 4, 512)
    assert model.spec.tied_head
    assert model.vocab is not None
    assert (model.vocab.kind, model.vocab.tokens[1], model.vocab.tokens[259], model.vocab.add_bos) == ("llama", "<s>", "▁t", True)
