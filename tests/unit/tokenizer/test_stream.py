"""Text as tokens come: whole characters, the same as all at once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byte_codec import ByteCodec
from camshaft.tokenizer import Detokenizer, Tokenizer
from camshaft.tokenizer.stream import Utf8Stream
from shared_data import shared_data_or_skip
from vocabularies import bpe_vocab, spm_vocab

BYTES = ByteCodec()
BPE = Tokenizer.from_vocab(bpe_vocab())
SPM = Tokenizer.from_vocab(spm_vocab())

# Bytes, then the text after each byte and at the end.
VECTORS = [
    (b"Hi", ["H", "i", ""]),
    ("é".encode(), ["", "é", ""]),
    ("€".encode(), ["", "", "€", ""]),
    ("🙂".encode(), ["", "", "", "🙂", ""]),
    ("e\u0301".encode(), ["e", "", "\u0301", ""]),
    ("\ufffd".encode(), ["", "", "\ufffd", ""]),
    (b"\xff", ["\ufffd", ""]),
    (b"\xf0\x9f\x99", ["", "", "", "\ufffd"]),
    (b"\xc3(", ["", "\ufffd(", ""]),
    (b"\xe2\x82(", ["", "", "\ufffd(", ""]),
    (b"\xc0\x80", ["\ufffd", "\ufffd", ""]),
]


@pytest.mark.parametrize(("data", "steps"), VECTORS)
def test_a_character_appears_when_its_last_byte_does(data: bytes, steps: list[str]) -> None:
    stream = Utf8Stream()
    assert [*(stream.push(bytes([b])) for b in data), stream.finish()] == steps


def test_the_shared_vectors_hold() -> None:
    for case in json.loads((shared_data_or_skip() / "conformance" / "utf8_vectors.json").read_text()):
        data = bytes.fromhex(case["hex"])
        stream = Utf8Stream()
        assert [*(stream.push(bytes([b])) for b in data), stream.finish()] == case["incremental_steps"]
        whole = Utf8Stream()
        assert whole.push(data) + whole.finish() == case["replaced"]


def streamed(tokenizer: Tokenizer | ByteCodec, ids: list[int], sizes: list[int], prompt: list[int] | None = None) -> list[str]:
    stream = Detokenizer(tokenizer, prompt or [])
    parts, at = [], 0
    for size in [*sizes, len(ids)]:
        parts.append(stream.push(ids[at : at + size]))
        at += size
    return [*parts, stream.finish()]


@given(st.binary(max_size=40), st.lists(st.integers(1, 5), max_size=20))
def test_the_text_is_the_same_whatever_the_steps(data: bytes, sizes: list[int]) -> None:
    assert "".join(streamed(BYTES, list(data), sizes)) == data.decode("utf-8", "replace")


@given(st.text(max_size=30), st.lists(st.integers(1, 3), max_size=40))
def test_emoji_and_cjk_split_over_tokens_never_show_a_replacement_character(text: str, sizes: list[int]) -> None:
    for tokenizer in (BPE, SPM):
        parts = streamed(tokenizer, tokenizer.encode(text), sizes)
        assert "".join(parts) == text
        assert "\ufffd" in text or not any("\ufffd" in part for part in parts)


@given(st.text(alphabet="ab é🙂", max_size=8), st.text(alphabet="ab é🙂", max_size=8), st.data())
def test_an_output_is_what_it_adds_to_the_decoded_prompt(before: str, after: str, data: st.DataObject) -> None:
    for tokenizer in (BPE, SPM):
        ids = tokenizer.encode(before + after)
        cut = data.draw(st.integers(0, len(ids)))
        prompt, output = ids[:cut], ids[cut:]
        added = "".join(streamed(tokenizer, output, [1] * len(output), prompt))
        whole = tokenizer.decode(ids)
        assert whole.endswith(added)
        known = tokenizer.decode(prompt)
        # A character begun by the prompt and finished by the output is the output's.
        assert whole[: len(whole) - len(added)] == known.rstrip("\ufffd") or not output


def test_a_prompt_that_ends_inside_a_character_does_not_leak() -> None:
    smile = list("🙂".encode())
    prompt = list(b"secret ") + smile[:2]
    assert "".join(streamed(BYTES, [*smile[2:], 33], [1, 1], prompt)) == "🙂!"
    assert "".join(streamed(BYTES, list(b"no"), [1], prompt)) == "no"  # never finished: the prompt's half is not the output's
    assert "".join(streamed(BYTES, [], [], prompt)) == ""
    assert "".join(streamed(BYTES, smile[2:3], [], prompt)) == "\ufffd"


def test_the_first_blank_of_a_sentencepiece_output_is_neither_lost_nor_gained() -> None:
    hello, world = SPM.encode("hello"), SPM.encode("world")
    assert SPM.decode([*hello, *world]) == "hello world"
    assert "".join(streamed(SPM, world, [], hello)) == " world"
    assert "".join(streamed(SPM, world, [], [1])) == "world"  # after BOS alone a text begins
    assert "".join(streamed(SPM, world, [], [])) == "world"


def test_special_tokens_appear_only_when_asked_for() -> None:
    ids = [BPE.special_id("<|im_start|>"), *BPE.encode("hello"), BPE.special_id("<|im_end|>")]
    shown = Detokenizer(BPE, skip_special_tokens=False)
    hidden = Detokenizer(BPE)
    assert (shown.push(ids) + shown.finish(), hidden.push(ids) + hidden.finish()) == ("<|im_start|>hello<|im_end|>", "hello")
