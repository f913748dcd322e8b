"""SentencePiece BPE against a slow twin that follows the definition word for word."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.formats.vocab import NORMAL, UNUSED, Vocab
from camshaft.tokenizer import Tokenizer
from vocabularies import PIECES, spm_vocab


def slow_twin(vocab: Vocab, text: str) -> list[int]:
    """Merge the best-scoring pair of neighbours, the leftmost of equals, until there is none; look at all of them each time."""
    assert vocab.types is not None
    assert vocab.scores is not None
    ids = {t: i for i, t in enumerate(vocab.tokens) if vocab.types[i] in (NORMAL, UNUSED)}
    origin: dict[str, tuple[str, str]] = {}
    parts = list(text.replace(" ", "▁"))
    while True:
        found = [(-float(vocab.scores[ids[a + b]]), i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not found:
            break
        _, i = min(found)
        origin[parts[i] + parts[i + 1]] = (parts[i], parts[i + 1])
        parts[i : i + 2] = [parts[i] + parts[i + 1]]

    def spelled(part: str) -> list[int]:
        if part in ids and vocab.types[ids[part]] == UNUSED and part in origin:
            return [x for half in origin[part] for x in spelled(half)]
        if part in ids:
            return [ids[part]]
        return [vocab.tokens.index(f"<0x{b:02X}>") for b in part.encode()]

    return [x for part in parts for x in spelled(part)]


TEXTS = st.text(alphabet="abchelowrd é", max_size=40)


@given(TEXTS)
def test_ids_are_those_of_the_slow_twin(text: str) -> None:
    vocab = spm_vocab(add_space_prefix=False)
    assert Tokenizer.from_vocab(vocab).encode(text) == slow_twin(vocab, text)


@settings(max_examples=60)
@given(st.text(alphabet="ab ", max_size=24), st.permutations(range(len(PIECES))), st.integers(1, 8))
def test_equal_scores_and_any_order_of_scores_change_nothing_in_that(text: str, order: list[int], ties: int) -> None:
    vocab = spm_vocab(scores=tuple(-float(i // ties) for i in order), add_space_prefix=False)
    assert Tokenizer.from_vocab(vocab).encode(text) == slow_twin(vocab, text)


@given(st.text(alphabet="ab ", max_size=24))
def test_tokens_that_reach_across_a_blank_are_found(text: str) -> None:
    vocab = spm_vocab((*PIECES, "b▁", "b▁a", "a▁▁"), add_space_prefix=False)
    assert Tokenizer.from_vocab(vocab).encode(text) == slow_twin(vocab, text)


@given(st.text(alphabet="helo a", max_size=24))
def test_unused_tokens_are_taken_apart_again(text: str) -> None:
    vocab = spm_vocab(add_space_prefix=False)
    assert vocab.types is not None
    for name in ("hell", "▁hello"):
        vocab.types[vocab.tokens.index(name)] = UNUSED
    assert Tokenizer.from_vocab(vocab).encode(text) == slow_twin(vocab, text)


def test_a_character_without_a_token_becomes_its_bytes_or_one_unknown_token_a_run() -> None:
    with_bytes = Tokenizer.from_vocab(spm_vocab(add_space_prefix=False))
    assert [with_bytes.token_bytes(i) for i in with_bytes.encode("é")] == [b"\xc3", b"\xa9"]
    assert with_bytes.decode(with_bytes.encode("a🙂b")) == "a🙂b"
    without = Tokenizer.from_vocab(spm_vocab(bytes_too=False, add_space_prefix=False))
    assert without.encode("aéüb") == [*without.encode("a"), 0, *without.encode("b")]


def test_the_blank_in_front_is_put_there_and_taken_away() -> None:
    spaced, bare = Tokenizer.from_vocab(spm_vocab()), Tokenizer.from_vocab(spm_vocab(add_space_prefix=False))
    assert spaced.encode("hello world") == bare.encode(" hello world")
    assert spaced.decode(spaced.encode("hello world")) == "hello world"
    assert spaced.decode(spaced.encode("  a")) == "  a"
    assert bare.decode(bare.encode(" a")) == " a"
    assert spaced.encode("") == []
    assert spaced.encode("hello", add_special_tokens=True)[0] == 1


def test_user_defined_runs_stand_for_themselves_wherever_they_occur_the_longest_first() -> None:
    tokenizer = Tokenizer.from_vocab(spm_vocab(user_defined=("\n", "\n\n", "  "), add_space_prefix=False))
    raw = [tokenizer.token_bytes(i) for i in tokenizer.encode("a\n\n\nb  c")]
    assert raw == [b"a", b"\n\n", b"\n", b"b", b"  ", b"c"]


@pytest.mark.parametrize("text", ["a" * 50_000, " " * 50_000, "ab" * 50_000, "hello world " * 8_000, "é" * 30_000])
def test_a_monotonous_text_is_encoded_without_trouble(text: str) -> None:
    tokenizer = Tokenizer.from_vocab(spm_vocab(add_space_prefix=False))
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert len(ids) >= tokenizer.n_at_least(text)
