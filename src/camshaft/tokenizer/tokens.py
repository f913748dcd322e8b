"""TokenTable: what each id means: its bytes, and whether text may ever turn into it.

Four classes. *Control* tokens (BOS, turn marks) steer the model: never made from text, dropped when decoding.
*Marks* (`<think>`, `<tool_call>`) are never made from a user's text either, but are part of the decoded output.
*Literals* (runs of blanks, HTML tags in Gemma) stand for their spelling wherever it occurs. The rest comes from merging.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from camshaft.formats.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab

# User-defined tokens that are structure rather than text. Anything else that is user-defined is a literal.
_MARK = re.compile(
    r"<\|[^|<>]{1,64}\|>|<(?:start|end)_of_\w+>|\[/?[A-Z_]{2,32}\]"
    r"|</?(?:think|tool_call|tool_response|tool_calls|tools|tool|reasoning|answer|image|audio|video)>"
)
_TURN_ENDS = frozenset(
    ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "<|end|>", "<|end_of_turn|>", "<end_of_turn>")
)
# Control tokens that answers are read by all the same.
_SHOWN = frozenset(("[TOOL_CALLS]", "<tool_call>", "</tool_call>", "<think>", "</think>"))
# Marks, except among HTML tags, where they mean struck-out text (Gemma).
_SENTENCE = ("<s>", "</s>")


class TokenTable(Struct, frozen=True, eq=False):
    """Everything by id. `raw` holds the bytes that a token adds to the output."""

    raw: tuple[bytes, ...]
    control: frozenset[int]
    spellings: dict[str, int]  # control tokens and marks: what control text may name
    literals: dict[str, int]
    normal: dict[str, int]  # what merging may give, as the file spells it
    byte_ids: dict[int, int]  # byte value -> the token for it alone
    ends: frozenset[int]  # ids that end a turn by their spelling


def byte_alphabet() -> tuple[str, ...]:
    """The printable character that byte-level BPE writes for each byte: itself where Latin-1 prints it, else one from U+0100 up."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return tuple(chr(b) if b in printable else chr(next(spare)) for b in range(256))


def table_of(vocab: Vocab, *, byte_level: bool) -> TokenTable:
    """The table of a vocabulary whose normal tokens are spelled in the byte alphabet, or else in SentencePiece's way."""
    types = [NORMAL] * len(vocab.tokens) if vocab.types is None else vocab.types.tolist()
    return build_table(vocab.tokens, types, byte_level=byte_level)


def build_table(tokens: Sequence[str], types: Sequence[int], *, byte_level: bool) -> TokenTable:
    """`types` are GGUF's token types, one per token. Of two tokens with one spelling, text becomes the first."""
    raw = _from_alphabet(tokens) if byte_level else _from_pieces(tokens)
    control: set[int] = set()
    spellings: dict[str, int] = {}
    literals: dict[str, int] = {}
    byte_ids: dict[int, int] = {}
    for i in [i for i, kind in enumerate(types) if kind != NORMAL]:
        token, kind = tokens[i], types[i]
        value = byte_value(token) if kind == BYTE else None
        if value is not None:
            byte_ids[value] = i
            raw[i] = bytes((value,))
        elif kind == USER_DEFINED:
            spelled = token.replace("▁", " ")
            (spellings if _MARK.fullmatch(spelled) else literals).setdefault(spelled, i)
            raw[i] = spelled.encode("utf-8", "replace")
        elif kind in (CONTROL, UNKNOWN):
            raw[i] = token.encode("utf-8", "replace")
            if kind == CONTROL:
                spellings.setdefault(token, i)
            if token not in _SHOWN:
                control.add(i)
    if "<b>" not in literals:
        spellings |= {name: literals.pop(name) for name in _SENTENCE if name in literals}
    literals.pop("", None)
    spellings.pop("", None)
    normal = {tokens[i]: i for i in range(len(tokens) - 1, -1, -1) if types[i] == NORMAL}
    ends = frozenset(spellings[name] for name in _TURN_ENDS & spellings.keys())
    return TokenTable(tuple(raw), frozenset(control), spellings, literals, normal, byte_ids, ends)


def byte_value(token: str) -> int | None:
    """`<0x0A>` -> 10; None for anything else."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        try:
            return int(token[3:5], 16)
        except ValueError:
            return None
    return None


def _from_pieces(tokens: Sequence[str]) -> list[bytes]:
    # One long string and back: a call for each of 262,144 tokens would take most of a second.
    raw = "\0".join(tokens).replace("▁", " ").encode("utf-8", "replace").split(b"\0")
    return raw if len(raw) == len(tokens) else [token.replace("▁", " ").encode("utf-8", "replace") for token in tokens]


def _from_alphabet(tokens: Sequence[str]) -> list[bytes]:
    """A token with a character from outside the alphabet stands for its own text."""
    table = {ord(char): byte for byte, char in enumerate(byte_alphabet())}
    # Latin-1 characters that are not in the alphabet must not pass for bytes.
    table |= {code: 0x10FFFF for code in range(256) if code not in table}
    # All of them at once, if none holds what stands between them: a call for each would take ten times as long.
    between, outside = "\n", "\u0100"  # the latter is in no result: the alphabet's images are below it
    joined = between.join(tokens).translate(table | {ord(between): ord(outside)}).split(outside)
    if len(joined) == len(tokens):
        try:
            return [text.encode("latin-1") for text in joined]
        except UnicodeEncodeError:
            pass  # some token is outside of the alphabet
    return [_one_from_alphabet(token, table) for token in tokens]


def _one_from_alphabet(token: str, table: dict[int, int]) -> bytes:
    try:
        return token.translate(table).encode("latin-1")
    except UnicodeEncodeError:
        return token.encode("utf-8", "replace")
