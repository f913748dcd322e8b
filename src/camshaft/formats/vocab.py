"""The vocabulary that a GGUF file carries: all that a tokenizer needs."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from camshaft.errors import ModelError
from camshaft.formats.gguf import GgufFile

T = TypeVar("T", bound=np.generic)

# Values of `types`, as GGUF numbers them.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

_NONE_ID = 0xFFFFFFFF  # -1 in 32 bits: some converters write it for "there is none"
# Control tokens that end a turn. Files made from base models often name only the end of a document as their end token.
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|endoftext|>")


class Vocab(Struct, frozen=True, eq=False):
    """Tokens by id, and the rules that come with them. A flag is None where the file does not say."""

    kind: str  # gpt2: byte-level BPE; llama: SentencePiece BPE
    pre: str  # the name of the pre-tokenizer, "" where none is given
    tokens: tuple[str, ...]
    scores: NDArray[np.float32] | None
    types: NDArray[np.int32] | None
    merges: tuple[str, ...]
    bos_id: int | None = None
    eos_id: int | None = None
    eot_id: int | None = None
    unk_id: int | None = None
    pad_id: int | None = None
    end_ids: tuple[int, ...] = ()  # every id that ends an answer
    add_bos: bool | None = None
    add_eos: bool | None = None
    add_space_prefix: bool | None = None


def read_vocab(file: GgufFile) -> Vocab | None:
    """The file's vocabulary, or None where it has none. Raises ModelError for one that contradicts itself."""
    where = file.path.name
    listed = file.array("tokenizer.ggml.tokens")
    if listed is None:
        return None
    tokens = tuple(listed.strings())
    if not tokens:
        raise ModelError(f"{where}: the vocabulary is empty")
    types = _numbers(file, "token_type", np.int32, len(tokens))
    merges = file.array("tokenizer.ggml.merges")
    eos_id, eot_id = _id(file, "eos", len(tokens)), _id(file, "eot", len(tokens))
    return Vocab(
        kind=file.text("tokenizer.ggml.model"),
        pre=file.text("tokenizer.ggml.pre", ""),
        tokens=tokens,
        scores=_numbers(file, "scores", np.float32, len(tokens)),
        types=types,
        merges=tuple(merges.strings()) if merges else (),
        bos_id=_id(file, "bos", len(tokens)),
        eos_id=eos_id,
        eot_id=eot_id,
        unk_id=_id(file, "unknown", len(tokens)),
        pad_id=_id(file, "padding", len(tokens)),
        end_ids=_end_ids(tokens, types, (eos_id, eot_id, _id(file, "eom", len(tokens)))),
        add_bos=_flag(file, "add_bos_token"),
        add_eos=_flag(file, "add_eos_token"),
        add_space_prefix=_flag(file, "add_space_prefix"),
    )


def open_vocab(path: Path | str) -> Vocab:
    """The vocabulary of a GGUF file of any architecture, tensors or not. Raises ModelError where there is none."""
    vocab = read_vocab(GgufFile(Path(path)))
    if vocab is None:
        raise ModelError(f"{path}: the file has no vocabulary")
    return vocab


def _numbers(file: GgufFile, key: str, kind: type[T], count: int) -> NDArray[T] | None:
    array = file.array(f"tokenizer.ggml.{key}")
    if array is None:
        return None
    if array.count != count:
        raise ModelError(f"{file.path.name}: tokenizer.ggml.{key} has {array.count:,} elements for {count:,} tokens")
    numbers = array.numbers()
    if not np.isfinite(numbers).all():
        raise ModelError(f"{file.path.name}: tokenizer.ggml.{key} has an element that is not a finite number")
    return numbers.astype(kind)


def _id(file: GgufFile, name: str, count: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value = file.integer(key, -1)
    if value in (-1, _NONE_ID):
        return None
    if not 0 <= value < count:
        raise ModelError(f"{file.path.name}: {key} is {value:,}, but there are {count:,} tokens")
    return value


def _flag(file: GgufFile, name: str) -> bool | None:
    key = f"tokenizer.ggml.{name}"
    return file.flag(key) if key in file.metadata else None


def _end_ids(tokens: tuple[str, ...], types: NDArray[np.int32] | None, named: tuple[int | None, ...]) -> tuple[int, ...]:
    ends = {i for i in named if i is not None}
    if types is not None:
        ends |= {int(i) for i in np.flatnonzero(types == CONTROL) if tokens[i] in _TURN_ENDS}
    return tuple(sorted(ends))
