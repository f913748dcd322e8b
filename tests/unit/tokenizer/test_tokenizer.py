"""Tokenizer: special tokens, parts of a chat, what is remembered, and real vocabularies where there are any."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.errors import BadRequest, ModelError
from camshaft.tokenizer import Tokenizer
from camshaft.tokenizer.memo import Memo
from shared_data import shared_data_or_skip
from vocabularies import bpe_vocab, spm_vocab

BPE = Tokenizer.from_vocab(bpe_vocab())
SPM = Tokenizer.from_vocab(spm_vocab())
MARKS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "<tool_call>")


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3"])
def test_a_real_vocabulary_gives_exactly_the_listed_ids(name: str) -> None:
    path = shared_data_or_skip() / "tokenizers" / f"ggml-vocab-{name}.gguf"
    tokenizer = Tokenizer.from_file(path)
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().splitlines()
    expected = [[int(word) for word in line.split()] for line in lines]
    assert len(texts) == len(expected) + 1
    assert texts[-1] == ""
    for text, ids in zip(texts, expected, strict=False):
        assert tokenizer.encode(text) == ids, text
        assert tokenizer.decode(ids) == text


@given(st.lists(st.sampled_from([*MARKS, "a", " ", "\n", "<|", "|>", "im_end"]), max_size=12).map("".join))
def test_special_tokens_in_a_text_are_text_never_control(text: str) -> None:
    ids = BPE.encode(text)
    assert not {BPE.special_id(mark) for mark in MARKS} & set(ids)
    assert BPE.decode(ids) == text
    parts_ids = BPE.encode_parts([("<|im_start|>", True), (text, False), ("<|im_end|>", True)])
    start, end = BPE.special_id("<|im_start|>"), BPE.special_id("<|im_end|>")
    assert parts_ids == [start, *ids, end]


def test_control_parts_may_name_special_tokens_and_marks() -> None:
    ids = BPE.encode_parts([("<|im_start|>user\n", True), ("hello", False), ("<|im_end|>\n<think>", True)])
    assert [BPE.token_bytes(i) for i in ids if BPE.is_special(i)] == [b"<|im_start|>", b"<|im_end|>"]
    assert ids[-1] == BPE.special_id("<think>")
    assert BPE.decode(ids) == "user\nhello\n<think>"


def test_a_special_token_in_two_strokes_is_one_but_never_one_with_a_users_half() -> None:
    end = BPE.special_id("<|im_end|>")
    assert BPE.encode_parts([("<|im_", True), ("end|>", True)]) == [end]
    assert end not in BPE.encode_parts([("<|im_", True), ("end|>", False)])
    assert end not in BPE.encode_parts([("<|im_", False), ("end|>", True)])


def test_text_between_two_special_tokens_is_one_text_whoever_wrote_it() -> None:
    assert BPE.encode_parts([("hel", True), ("lo wor", False), ("ld", True)]) == BPE.encode("hello world")


def test_bos_and_eos_are_added_only_when_asked_for() -> None:
    assert SPM.encode("a", add_special_tokens=True) == [1, *SPM.encode("a")]
    assert SPM.encode("a") == SPM.encode("a", add_special_tokens=False)
    assert BPE.encode("a", add_special_tokens=True) == BPE.encode("a")


def test_every_end_of_turn_is_an_end() -> None:
    assert {BPE.special_id("<|im_end|>"), BPE.special_id("<|endoftext|>")} == BPE.eos_ids
    assert SPM.eos_ids == {2}
    assert (SPM.bos_id, SPM.eos_id, SPM.is_special(1), SPM.is_special(0)) == (1, 2, True, True)


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "ok \ud83d"])
def test_lone_surrogates_are_a_bad_request(text: str) -> None:
    with pytest.raises(BadRequest, match="lone surrogate"):
        BPE.encode(text)
    with pytest.raises(BadRequest, match="lone surrogate"):
        BPE.encode_parts([(text, False)])


def test_half_characters_and_special_tokens_have_their_bytes() -> None:
    # What logprobs show: one entry a token, whether or not its bytes are text on their own.
    ids = [*BPE.encode("🙂"), BPE.special_id("<|im_end|>")]
    assert [BPE.token_bytes(i) for i in ids] == [b"\xf0", b"\x9f", b"\x99", b"\x82", b"<|im_end|>"]


def test_ids_outside_the_vocabulary() -> None:
    assert BPE.token_bytes(BPE.vocab_size + 5) == b""  # an embedding may be padded
    with pytest.raises(BadRequest, match="not a token id"):
        BPE.token_bytes(-1)


def test_decoding_drops_special_tokens_unless_told_otherwise() -> None:
    ids = BPE.encode_parts([("<|im_start|>", True), ("hello", False)])
    assert BPE.decode(ids) == "hello"
    assert BPE.decode(ids, skip_special_tokens=False) == "<|im_start|>hello"


class CountingEncoder:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.texts.append(text)
        return [1] * len(text)


def counted() -> tuple[Tokenizer, CountingEncoder]:
    encoder = CountingEncoder()
    return Tokenizer(BPE._table, encoder, BPE._rules), encoder


def test_the_unchanging_prefix_of_a_template_is_encoded_once() -> None:
    tokenizer, encoder = counted()
    system = "system\n" + "Be helpful. " * 50
    for i in range(3):
        tokenizer.encode_parts([(f"<|im_start|>{system}<|im_end|>", True), (f"question {i}", False)])
    assert encoder.texts.count(system) == 1
    assert [t for t in encoder.texts if t.startswith("question")] == ["question 0", "question 1", "question 2"]


def test_one_tenants_texts_are_not_remembered_for_another() -> None:
    tokenizer, encoder = counted()
    for salt in ("a", "b", "a", "b"):
        tokenizer.encode_parts([("x" * 500, False)], salt=salt)
    assert len(encoder.texts) == 2


def test_the_memo_is_bounded_and_forgets_the_oldest() -> None:
    memo = Memo(max_chars=1000, min_len=10)
    for i in range(50):
        memo.put(("", f"{i:0100d}"), (i,))
    assert memo.get(("", f"{0:0100d}")) is None
    assert memo.get(("", f"{49:0100d}")) == (49,)
    memo.put(("", "x" * 999), (1,))
    memo.put(("", "x"), (1,))
    assert memo.get(("", "x" * 999)) is None
    assert memo.get(("", "x")) is None


def test_several_threads_get_the_same_ids() -> None:
    texts = [f"hello world {i} <|im_end|> " * 30 for i in range(20)]
    expected = [BPE.encode(t) for t in texts]
    found: list[list[list[int]]] = []
    threads = [threading.Thread(target=lambda: found.append([BPE.encode_parts([(t, False)]) for t in texts])) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_file_that_is_not_there_says_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        Tokenizer.from_file(tmp_path)
