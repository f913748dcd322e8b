"""Byte-level BPE over the `tokenizers` library: text to ids where every byte sequence has a spelling."""

from __future__ import annotations

from collections.abc import Iterable

import tokenizers
from tokenizers import Regex, models, pre_tokenizers

from camshaft.errors import ModelError
from camshaft.tokenizer.pre import PreTokenizer
from camshaft.tokenizer.tokens import byte_alphabet

# A shorter text is encoded sooner than the library's threads are woken.
_SHORT_CHARS = 2048

# Real vocabularies lack a few control bytes and rare lead bytes, which are then dropped from text as everywhere else.
# One that lacks any of these is not a vocabulary for text.
_NEEDED_BYTES = (0x0A, *range(0x20, 0x7F))


class BpeEncoder:
    """Encodes without special tokens of any kind. The library merges a word in n log n."""

    def __init__(self, normal: dict[str, int], merges: Iterable[str], pre: PreTokenizer) -> None:
        """`normal`: tokens in the byte alphabet. `merges`: `left right`, best first. Raises ModelError for a vocabulary with holes."""
        alphabet = byte_alphabet()
        missing = [b for b in _NEEDED_BYTES if alphabet[b] not in normal]
        if missing:
            raise ModelError(
                f"the vocabulary has no token for {len(missing)} of the bytes that text is made of, such as 0x{missing[0]:02X}"
            )
        model = models.BPE(vocab=normal, merges=_pairs(merges, normal), ignore_merges=pre.whole_words)
        splits = [pre_tokenizers.Split(Regex(pattern), behavior="isolated") for pattern in pre.patterns]
        self._core = tokenizers.Tokenizer(model)
        self._core.pre_tokenizer = pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, text: str) -> list[int]:
        return encode_freely(self._core, text)


def encode_freely(core: tokenizers.Tokenizer, text: str) -> list[int]:
    """Ids of a text without special tokens. Other threads run meanwhile: of the library's calls, only those for batches let the GIL go."""
    if len(text) <= _SHORT_CHARS:
        ids: list[int] = core.encode(text, add_special_tokens=False).ids
        return ids
    (encoding,) = core.encode_batch_fast([text], add_special_tokens=False)
    return list(encoding.ids)


def _pairs(merges: Iterable[str], normal: dict[str, int]) -> list[tuple[str, str]]:
    """Merges as pairs. One that no text could use, because a token of it is not normal, is left out."""
    listed = list(merges)
    # One string and back: a call for each of fifty thousand merges takes longer than all else here.
    halves = "\0".join(listed).replace(" ", "\0").split("\0") if listed else []
    if len(halves) != 2 * len(listed) or "" in halves or not all(" " in merge for merge in listed):
        bad = next(merge for merge in listed if "\0" in merge or len(list(filter(None, merge.split(" ")))) != 2 or merge.count(" ") != 1)
        raise ModelError(f"the vocabulary has a merge that is not two tokens: {bad[:80]!r}")
    left, right = halves[::2], halves[1::2]
    whole = "\0".join(listed).replace(" ", "").split("\0") if listed else []
    known = normal.__contains__
    if all(map(known, halves)) and all(map(known, whole)):
        return list(zip(left, right, strict=True))
    return [(a, b) for a, b, ab in zip(left, right, whole, strict=True) if known(a) and known(b) and known(ab)]
