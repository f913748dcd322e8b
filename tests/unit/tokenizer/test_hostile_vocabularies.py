"""Whatever a file says its vocabulary is: a clear error, or a tokenizer that gives back every text it can spell."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from camshaft.errors import ModelError
from camshaft.formats.vocab import Vocab
from camshaft.tokenizer import Tokenizer
from vocabularies import bpe_vocab

TOKENS = st.text(max_size=4) | st.sampled_from(["<0xZZ>", "<0x41>", "<|im_end|>", "▁", "▁▁", "\0", "a\0b", "<s>", "[", "]", "\ufffd"])
TOKENS_AT = st.dictionaries(st.integers(0, 400), TOKENS, max_size=12)
TYPES_AT = st.dictionaries(st.integers(0, 400), st.integers(-1, 9), max_size=12)
SCORES = st.floats(width=32) | st.just(float("nan"))


def survives(vocab: Vocab, text: str) -> None:
    try:
        tokenizer = Tokenizer.from_vocab(vocab)
    except ModelError:
        return
    for ids in (tokenizer.encode(text, add_special_tokens=True), tokenizer.encode_parts([(text, True), (text, False), (text, True)])):
        assert all(0 <= i < tokenizer.vocab_size for i in ids)
        tokenizer.decode(ids)
        assert len(tokenizer.encode(text)) >= tokenizer.n_at_least(text) or tokenizer.decode(tokenizer.encode(text)) != text


@settings(max_examples=40)
@given(TOKENS_AT, TYPES_AT, st.lists(st.text(alphabet="ab Ġhe", max_size=5), max_size=8), st.text(max_size=20))
def test_a_mutated_byte_level_vocabulary(tokens: dict[int, str], types: dict[int, int], merges: list[str], text: str) -> None:
    vocab = bpe_vocab()
    assert vocab.types is not None
    mutated = tuple(tokens.get(i, t) for i, t in enumerate(vocab.tokens))
    kinds = np.array([types.get(i, int(k)) for i, k in enumerate(vocab.types)], dtype=np.int32)
    survives(replace(vocab, tokens=mutated, types=kinds, merges=(*vocab.merges, *merges)), text)
