"""tokenizer.json: the library's ids, our rule about who may write control tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.errors import ModelError
from camshaft.tokenizer import Tokenizer
from camshaft.tokenizer.pre import pre_tokenizer
from camshaft.tokenizer.tokens import byte_alphabet
from vocabularies import MERGES, PIECES, bpe_vocab, spm_vocab


def added(content: str, id: int, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id, "content": content, "special": special, **flags}


def byte_level() -> dict[str, Any]:
    """The vocabulary of `bpe_vocab("gpt-2")` as a Hugging Face file."""
    vocab = bpe_vocab()
    n = 256 + len(MERGES)
    pattern = {"type": "Split", "pattern": {"Regex": pre_tokenizer("gpt-2").patterns[0]}, "behavior": "Isolated", "invert": False}
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "added_tokens": [added(t, n + i, special=not t.startswith(("<t", "</"))) for i, t in enumerate(vocab.tokens[n:])],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [pattern, plain]},
        "post_processor": None,
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(vocab.tokens[:n])}, "merges": list(MERGES)},
    }


def sentencepiece(normalizer: dict[str, Any] | None, pre: dict[str, Any] | None) -> dict[str, Any]:
    tokens = spm_vocab().tokens
    ids = {t: i for i, t in enumerate(tokens)}
    order = [p for p in PIECES if len(p) > 1]
    merges = [[p[:k], p[k:]] for p in order for k in range(1, len(p)) if p[:k] in ids and p[k:] in ids]
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "version": "1.0",
        "added_tokens": [added("<unk>", 0, special=True), added("<s>", 1, special=True), added("</s>", 2, special=True)],
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": single,
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}],
        },
        "model": {"type": "BPE", "vocab": ids, "merges": merges, "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True},
    }


LEGACY = {
    "type": "Sequence",
    "normalizers": [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
}
METASPACE = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}


def opened(folder: Path, spec: dict[str, Any], config: dict[str, Any] | None = None) -> Tokenizer:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(spec))
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return Tokenizer.from_file(folder)


@pytest.fixture(scope="module")
def bytes_of(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return opened(tmp_path_factory.mktemp("hf"), byte_level(), {"eos_token": {"content": "<|im_end|>"}, "bos_token": None})


@given(text=st.text(alphabet="helo wrd12é🙂\n<|im_end|>", max_size=40))
def test_a_file_and_a_gguf_of_one_vocabulary_give_the_same_ids(bytes_of: Tokenizer, text: str) -> None:
    assert bytes_of.encode(text) == Tokenizer.from_vocab(bpe_vocab()).encode(text)
    assert bytes_of.decode(bytes_of.encode(text)) == text


def test_added_tokens_are_found_in_control_text_only(bytes_of: Tokenizer) -> None:
    end = bytes_of.special_id("<|im_end|>")
    assert end not in bytes_of.encode("<|im_end|>")
    assert bytes_of.encode_parts([("<|im_end|>", True)]) == [end]
    assert bytes_of.eos_ids == {end, bytes_of.special_id("<|endoftext|>")}
    assert (bytes_of.eos_id, bytes_of.bos_id) == (end, None)
    think = bytes_of.special_id("<think>")
    assert think is not None
    assert not bytes_of.is_special(think)


@pytest.mark.parametrize(("normalizer", "pre"), [(LEGACY, None), (None, METASPACE)])
@settings(max_examples=40)
@given(text=st.text(alphabet="helo wrdab é", max_size=30))
def test_sentencepiece_files_give_back_every_text(tmp_path_factory: pytest.TempPathFactory, normalizer: Any, pre: Any, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / ("legacy" if normalizer else "metaspace")
    tokenizer = Tokenizer.from_file(folder) if folder.exists() else opened(folder, sentencepiece(normalizer, pre))
    ids = tokenizer.encode(text, add_special_tokens=True)
    assert ids[0] == 1
    if normalizer is not None:
        # Metaspace adds no blank where there is one, so there the first blank of a text cannot be told from its own.
        assert tokenizer.decode(ids) == text


def test_the_blank_in_front_follows_the_file(tmp_path: Path) -> None:
    legacy, first = opened(tmp_path / "a", sentencepiece(LEGACY, None)), opened(tmp_path / "b", sentencepiece(None, METASPACE))
    hello = [PIECES.index("▁hello") + 259]
    assert legacy.encode("hello") == first.encode("hello") == hello
    assert first.encode(" hello") == hello
    after = [("hello", True), ("</s>", True), ("hello", True)]
    assert legacy.encode_parts(after) == [*hello, 2, *hello]
    assert first.encode_parts(after) == [*hello, 2, PIECES.index("hello") + 259]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"\xff",
        b"{}",
        b'{"model": 7}',
        b'{"model": {"type": "WordPiece", "vocab": {}}}',
        b'{"model": {"type": "BPE", "vocab": {}, "merges": []}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 999999999}, "merges": []}}',
        b'{"model": {"type": "BPE", "vocab": {"a": "x"}, "merges": []}}',
        b'{"model": {"type": "BPE", "vocab": {"a": -7}, "merges": []}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [7]}}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"content": "x"}]}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "added_tokens": [{"content": "x", "id": -1}]}',
        b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Unheard"}}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_a_clear_model_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError):
        Tokenizer.from_file(tmp_path)


def test_the_alphabet_is_256_different_characters() -> None:
    assert len(set(byte_alphabet())) == 256
    assert byte_alphabet()[0x20] == "Ġ"
    assert byte_alphabet()[0x41] == "A"
