"""Small vocabularies for tests, made here: one of each kind."""

from __future__ import annotations

import numpy as np

from camshaft.formats.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab
from camshaft.tokenizer.tokens import byte_alphabet

CHAT_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
MERGES = ("h e", "l l", "he ll", "hell o", "Ġ w", "Ġw o", "Ġwo r", "Ġwor l", "Ġworl d", "i m", "Ġ Ġ", "1 2", "12 3", "Ã ©", "e n", "en d")


def bpe_vocab(
    pre: str = "gpt-2", *, marks: tuple[str, ...] = CHAT_MARKS, user_defined: tuple[str, ...] = ("<think>", "</think>", "<tool_call>")
) -> Vocab:
    """Byte-level BPE: 256 bytes, a few merges, control tokens, and user-defined ones."""
    normal = (*byte_alphabet(), *(m.replace(" ", "") for m in MERGES))
    types = [NORMAL] * len(normal) + [CONTROL] * len(marks) + [USER_DEFINED] * len(user_defined)
    tokens = (*normal, *marks, *user_defined)
    ids = {token: i for i, token in enumerate(tokens)}
    return Vocab(
        kind="gpt2",
        pre=pre,
        tokens=tokens,
        scores=None,
        types=np.array(types, dtype=np.int32),
        merges=MERGES,
        bos_id=ids[marks[0]],
        eos_id=ids[marks[-1]],
    )


PIECES = (
    "▁",
    "a",
    "b",
    "c",
    "h",
    "e",
    "l",
    "o",
    "w",
    "r",
    "d",
    "▁w",
    "he",
    "ll",
    "hell",
    "hello",
    "▁hello",
    "or",
    "▁wor",
    "ld",
    "▁world",
    "aa",
    "ab",
    "ba",
    "aba",
    "▁▁",
    "▁▁▁▁",
)


def spm_vocab(
    pieces: tuple[str, ...] = PIECES,
    *,
    scores: tuple[float, ...] | None = None,
    user_defined: tuple[str, ...] = (),
    bytes_too: bool = True,
    add_space_prefix: bool | None = None,
) -> Vocab:
    """SentencePiece BPE: unknown, BOS, EOS, 256 bytes, then the pieces, the longer the better unless scores are given."""
    head = ("<unk>", "<s>", "</s>")
    raw = tuple(f"<0x{b:02X}>" for b in range(256)) if bytes_too else ()
    tokens = (*head, *raw, *pieces, *user_defined)
    kinds = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * len(raw) + [NORMAL] * len(pieces) + [USER_DEFINED] * len(user_defined)
    ranks = scores or tuple(-float(i) for i in range(len(pieces)))
    return Vocab(
        kind="llama",
        pre="default",
        tokens=tokens,
        scores=np.array([0.0] * (3 + len(raw)) + list(ranks) + [0.0] * len(user_defined), dtype=np.float32),
        types=np.array(kinds, dtype=np.int32),
        merges=(),
        bos_id=1,
        eos_id=2,
        unk_id=0,
        add_bos=True,
        add_space_prefix=add_space_prefix,
    )
