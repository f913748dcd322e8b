"""Byte-level BPE and the ways to cut text before it."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from camshaft.errors import ModelError
from camshaft.tokenizer import Tokenizer
from camshaft.tokenizer.pre import pre_tokenizer
from vocabularies import bpe_vocab

NAMES = ("default", "gpt-2", "llama-bpe", "qwen2", "smollm", "falcon", "tekken", "gpt-4o")


def pieces(tokenizer: Tokenizer, text: str) -> list[bytes]:
    return [tokenizer.token_bytes(i) for i in tokenizer.encode(text)]


def test_merges_apply_in_their_order() -> None:
    assert pieces(Tokenizer.from_vocab(bpe_vocab()), "hello world hell") == [b"hello", b" world", b" ", b"hell"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-2", [b"123"]),
        ("smollm", [b"1", b"2", b"3"]),
        ("qwen2", [b"1", b"2", b"3"]),
        ("llama-bpe", [b"123"]),
        ("tekken", [b"1", b"2", b"3"]),
    ],
)
def test_numbers_are_cut_as_the_pre_tokenizer_says(name: str, expected: list[bytes]) -> None:
    assert pieces(Tokenizer.from_vocab(bpe_vocab(name)), "123") == expected


@pytest.mark.parametrize("name", NAMES)
@given(st.text(max_size=60))
def test_decoding_gives_back_every_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert tokenizer.decode(tokenizer.encode(text)) == text


TOKENIZERS = {name: Tokenizer.from_vocab(bpe_vocab(name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "text", ["a" * 30_000, " " * 30_000, "\n" * 30_000, "1" * 30_000, "a1 " * 30_000, "'" * 30_000, " \n" * 15_000, "é" * 15_000]
)
def test_a_monotonous_text_is_encoded_without_trouble(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer, n_ticks, over = Tokenizer.from_vocab(bpe_vocab()), 0, threading.Event()

    def tick() -> None:
        nonlocal n_ticks
        while not over.wait(0.001):
            n_ticks += 1

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = n_ticks
        n_ids = len(tokenizer.encode("hello world " * 50_000))
        after = n_ticks
    finally:
        over.set()
        thread.join()
    assert n_ids == 150_000
    # A call that keeps the interpreter to itself lets one tick through at its beginning and one at its end.
    assert after - before > 5


def test_a_long_text_gets_the_ids_of_its_short_pieces() -> None:
    tokenizer = Tokenizer.from_vocab(bpe_vocab())
    assert tokenizer.encode("hello world\n" * 1000) == tokenizer.encode("hello world\n") * 1000


def test_an_unknown_pre_tokenizer_is_refused_because_its_ids_would_be_wrong_in_silence() -> None:
    with pytest.raises(ModelError, match="'klingon' is not supported"):
        Tokenizer.from_vocab(bpe_vocab("klingon"))
    assert pre_tokenizer("starcoder") == pre_tokenizer("smollm")


def test_a_vocabulary_that_cannot_spell_text_is_refused() -> None:
    vocab = bpe_vocab()
    kept = [i for i, t in enumerate(vocab.tokens) if t != "e"]
    assert vocab.types is not None
    broken = replace(vocab, tokens=tuple(vocab.tokens[i] for i in kept), types=np.array([vocab.types[i] for i in kept], dtype=np.int32))
    with pytest.raises(ModelError, match="0x65"):
        Tokenizer.from_vocab(broken)
    with pytest.raises(ModelError, match="not two tokens"):
        Tokenizer.from_vocab(replace(vocab, merges=("abc",)))
    with pytest.raises(ModelError, match="'wordpiece' is not supported"):
        Tokenizer.from_vocab(replace(vocab, kind="wordpiece"))


def test_merging_never_gives_a_control_token() -> None:
    # A hostile or careless file may have merges that spell one.
    vocab = bpe_vocab(marks=("<|endoftext|>", "<s", "<s>"))
    tokenizer = Tokenizer.from_vocab(replace(vocab, merges=("< s", "<s >")))
    assert not tokenizer.special_ids & set(tokenizer.encode("<s> <s>"))
