"""tokenizer.json: its model and its cutting rules go to the `tokenizers` library, its special tokens stay with us.

The library would look for added tokens in any text, a user's included. So they are taken out before it sees the file, as are
the rules that add a blank or BOS in front: who may write what, and where a text begins, is decided in one place for all files.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tokenizers
from msgspec import Struct

from camshaft.errors import ModelError
from camshaft.formats.vocab import BYTE, CONTROL, NORMAL, USER_DEFINED
from camshaft.tokenizer.bpe import encode_freely
from camshaft.tokenizer.tokens import TokenTable, build_table, byte_value

_MAX_BYTES = 256 << 20
_MAX_IDS = 1 << 21


class HfEncoder:
    """Encodes without special tokens of any kind."""

    def __init__(self, core: tokenizers.Tokenizer) -> None:
        self._core = core

    def encode(self, text: str) -> list[int]:
        return encode_freely(self._core, text)


class HfFile(Struct, frozen=True, eq=False):
    """What a folder's tokenizer files say."""

    encoder: HfEncoder
    table: TokenTable
    prefix: str  # "", "first" or "always": where a blank goes in front of text
    prefix_unless_space: bool
    before: tuple[str, ...]  # special tokens in front of a text, and after it
    after: tuple[str, ...]
    config: dict[str, Any]  # tokenizer_config.json


def read_hf(path: Path) -> HfFile:
    """`path` is tokenizer.json; tokenizer_config.json beside it is read too. Raises ModelError."""
    spec = _json(path)
    config_path = path.with_name("tokenizer_config.json")
    config = _json(config_path) if config_path.is_file() else {}
    try:
        added = _added_tokens(spec)
        byte_level = _is_byte_level(spec)
        tokens, types = _tokens(spec, added)
        prefix, unless_space = _take_prefix(spec)
        before, after = _surroundings(spec, config)
        encoder = HfEncoder(_core(spec, added))
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelError(f"{path}: not a tokenizer.json that can be read ({type(error).__name__}: {error})") from None
    table = build_table(tokens, types, byte_level=byte_level)
    return HfFile(encoder, table, prefix, unless_space, before, after, config)


def _json(path: Path) -> dict[str, Any]:
    if path.stat().st_size > _MAX_BYTES:
        raise ModelError(f"{path}: larger than {_MAX_BYTES >> 20} MB, which no tokenizer is")
    try:
        found = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise ModelError(f"{path}: not valid JSON") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path}: not a JSON object")
    return found


def _added_tokens(spec: dict[str, Any]) -> dict[str, tuple[int, bool]]:
    """Spelling -> (id, whether it is special)."""
    return {t["content"]: (int(t["id"]), bool(t.get("special"))) for t in spec.get("added_tokens") or ()}


def _is_byte_level(spec: dict[str, Any]) -> bool:
    if spec["model"].get("type", "BPE") not in ("BPE", "Unigram"):
        raise ModelError(f"a tokenizer of type {spec['model']['type']} is not supported; BPE and Unigram are")
    names = {part.get("type") for part in _flat(spec.get("decoder"), "decoders")}
    names |= {part.get("type") for part in _flat(spec.get("pre_tokenizer"), "pretokenizers")}
    return "ByteLevel" in names


def _flat(part: dict[str, Any] | None, inner: str) -> list[dict[str, Any]]:
    """A normalizer, pre-tokenizer or decoder as the list of its steps."""
    if part is None:
        return []
    return [step for one in part[inner] for step in _flat(one, inner)] if part.get("type") == "Sequence" else [part]


def _tokens(spec: dict[str, Any], added: dict[str, tuple[int, bool]]) -> tuple[list[str], list[int]]:
    """Tokens by id with GGUF's types. An id that nobody names gets an empty token."""
    vocab = spec["model"]["vocab"]
    pairs = list(vocab.items()) if isinstance(vocab, dict) else [(entry[0], i) for i, entry in enumerate(vocab)]
    ids = [i for _, i in pairs] + [i for i, _ in added.values()]
    size = 1 + max(ids, default=-1)
    if not 0 < size <= _MAX_IDS or min(ids) < 0:
        raise ModelError(f"a vocabulary of {size:,} tokens is not supported")
    tokens, types = [""] * size, [NORMAL] * size
    for token, i in pairs:
        tokens[i] = token
        types[i] = BYTE if byte_value(token) is not None else NORMAL
    for token, (i, special) in added.items():
        tokens[i], types[i] = token, CONTROL if special else USER_DEFINED
    return tokens, types


def _take_prefix(spec: dict[str, Any]) -> tuple[str, bool]:
    """Where a blank is put in front of text, and whether only when none is there; taken out of `spec`."""
    prefix, unless_space = "", False
    for step in _flat(spec.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
            prefix, unless_space = {"always": "always", "first": "first"}.get(scheme, ""), True
            step |= {"prepend_scheme": "never"}
            step.pop("add_prefix_space", None)
        elif step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
            prefix, unless_space = "always", True
            step["add_prefix_space"] = False
    steps = _flat(spec.get("normalizer"), "normalizers")
    kept = [step for step in steps if not (step.get("type") == "Prepend" and step.get("prepend") == "▁")]
    if len(kept) < len(steps):
        prefix, unless_space = "always", False
        spec["normalizer"] = {"type": "Sequence", "normalizers": kept}
    return prefix, unless_space


def _surroundings(spec: dict[str, Any], config: dict[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Special tokens in front of a single text and after it."""
    steps = _flat(spec.get("post_processor"), "processors")
    for step in steps:
        if step.get("type") == "TemplateProcessing":
            names = [next(iter(part.items())) for part in step["single"]]
            at = next(i for i, (kind, _) in enumerate(names) if kind == "Sequence")
            before, after = names[:at], names[at + 1 :]
            return tuple(str(p["id"]) for _, p in before), tuple(str(p["id"]) for _, p in after)
    ends = tuple(_spelling(config.get(f"{name}_token")) if config.get(f"add_{name}_token") else "" for name in ("bos", "eos"))
    return ((ends[0],) if ends[0] else ()), ((ends[1],) if ends[1] else ())


def _spelling(entry: object) -> str:
    """A special token in tokenizer_config.json: a string, or an object with its content."""
    if isinstance(entry, dict):
        entry = entry.get("content")
    return entry if isinstance(entry, str) else ""


def special_name(config: dict[str, Any], name: str) -> str:
    """The spelling that tokenizer_config.json gives for `bos_token` and the like; "" for none."""
    return _spelling(config.get(name))


def _core(spec: dict[str, Any], added: dict[str, tuple[int, bool]]) -> tokenizers.Tokenizer:
    """The library's tokenizer over the file without added tokens, post-processor, truncation and padding."""
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        # A special token that stands in the vocabulary could otherwise be reached as a whole word.
        merged = {part for merge in model.get("merges", ()) for part in _halves(merge)}
        reserved = {token for token, (_, special) in added.items() if special and token not in merged}
        reserved -= {model.get("unk_token")}
        model = model | {"vocab": {token: i for token, i in model["vocab"].items() if token not in reserved}}
    bare = spec | {"model": model, "added_tokens": [], "post_processor": None, "decoder": None, "truncation": None, "padding": None}
    # The library raises Exception itself for a bad file, which no handler could catch without catching everything.
    # A future hands the error over as a value.
    with ThreadPoolExecutor(1) as pool:
        outcome = pool.submit(tokenizers.Tokenizer.from_str, json.dumps(bare))
    error = outcome.exception()
    if error is not None:
        raise ModelError(f"tokenizer.json is damaged or too new: {str(error)[:300]}")
    return outcome.result()


def _halves(merge: Any) -> tuple[str, ...]:
    left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
    return (left, right, left + right)
