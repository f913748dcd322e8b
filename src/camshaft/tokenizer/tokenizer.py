"""Tokenizer: text to ids and back, for every kind of vocabulary, with one rule: text is never control."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from camshaft.errors import BadRequest, ModelError
from camshaft.formats.vocab import UNUSED, Vocab, open_vocab
from camshaft.tokenizer.bpe import BpeEncoder
from camshaft.tokenizer.hf import HfFile, read_hf, special_name
from camshaft.tokenizer.memo import Memo
from camshaft.tokenizer.pre import pre_tokenizer
from camshaft.tokenizer.spellings import Spellings
from camshaft.tokenizer.spm import SpmEncoder
from camshaft.tokenizer.stream import Detokenizer
from camshaft.tokenizer.tokens import TokenTable, table_of

Part = tuple[str, bool]  # a stretch of text, and whether it is control: only there a special token's spelling is that token


class Encoder(Protocol):
    """Merges text into ids. Knows no special tokens."""

    def encode(self, text: str) -> list[int]: ...


class Rules(Struct, frozen=True):
    """What goes around a text, and which ids mean something."""

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    prefix: str = ""  # "", "first" or "always": where a blank goes in front of text
    prefix_unless_space: bool = False
    bos_id: int | None = None
    eos_id: int | None = None
    eos_ids: frozenset[int] = frozenset()


class ModelFiles(Protocol):
    """What `from_model` needs of an opened model."""

    @property
    def vocab(self) -> Vocab | None: ...

    @property
    def tokenizer_path(self) -> Path | None: ...


class Tokenizer:
    """Immutable but for its memo; safe to use from several threads at once."""

    def __init__(self, table: TokenTable, encoder: Encoder, rules: Rules) -> None:
        self._table = table
        self._encoder = encoder
        self._rules = rules
        self._raw = table.raw
        self._specials = Spellings(table.spellings)
        self._literals = Spellings(table.literals)
        self._longest = max(map(len, table.raw), default=1)
        self._memo = Memo()
        self.special_ids = table.control
        self.eos_ids = rules.eos_ids | table.ends

    @classmethod
    def from_file(cls, path: Path | str) -> Tokenizer:
        """From a GGUF file, a tokenizer.json, or a folder with either. Raises ModelError."""
        path = Path(path)
        if path.is_dir():
            found = [path / "tokenizer.json", *sorted(path.glob("*.gguf"))]
            path = next((p for p in found if p.is_file()), path / "tokenizer.json")
        if not path.is_file():
            raise ModelError(f"{path}: no such file; a tokenizer is a GGUF file, a tokenizer.json or a folder with one")
        return cls._from_hf(read_hf(path)) if path.suffix == ".json" else cls.from_vocab(open_vocab(path))

    @classmethod
    def from_model(cls, model: ModelFiles) -> Tokenizer:
        """From an opened model file. Raises ModelError where it has no tokenizer."""
        if model.vocab is not None:
            return cls.from_vocab(model.vocab)
        if model.tokenizer_path is not None:
            return cls.from_file(model.tokenizer_path)
        raise ModelError("the model has no tokenizer: its file has no vocabulary, or its folder no tokenizer.json")

    @classmethod
    def from_vocab(cls, vocab: Vocab) -> Tokenizer:
        """From a GGUF vocabulary. Raises ModelError for a kind that is not supported."""
        if vocab.kind == "gpt2":
            table = table_of(vocab, byte_level=True)
            pre = pre_tokenizer(vocab.pre)
            # Llama 3's converter leaves the flag out where its tokenizer adds BOS.
            return cls(table, BpeEncoder(table.normal, vocab.merges, pre), _rules(vocab, add_bos=vocab.pre == "llama-bpe", prefix=""))
        if vocab.kind == "llama":
            table = table_of(vocab, byte_level=False)
            if vocab.scores is None:
                raise ModelError("the vocabulary has no scores, which SentencePiece needs to merge")
            unused = {} if vocab.types is None else {vocab.tokens[i]: int(i) for i in (vocab.types == UNUSED).nonzero()[0]}
            spaced = vocab.add_space_prefix is not False
            encoder = SpmEncoder(table, vocab.scores, unused, vocab.unk_id)
            return cls(table, encoder, _rules(vocab, add_bos=True, prefix="always" if spaced else ""))
        raise ModelError(f"a tokenizer of kind {vocab.kind!r} is not supported; gpt2 (byte-level BPE) and llama (SentencePiece BPE) are")

    @classmethod
    def _from_hf(cls, file: HfFile) -> Tokenizer:
        table = file.table
        ids = {name: _find(table, special_name(file.config, f"{name}_token")) for name in ("bos", "eos")}
        rules = Rules(
            before=tuple(table.spellings[t] for t in file.before if t in table.spellings),
            after=tuple(table.spellings[t] for t in file.after if t in table.spellings),
            prefix=file.prefix,
            prefix_unless_space=file.prefix_unless_space,
            bos_id=ids["bos"],
            eos_id=ids["eos"],
            eos_ids=frozenset(i for i in (ids["eos"],) if i is not None),
        )
        return cls(table, file.encoder, rules)

    # ------------------------------------------------------------------------------------------------------- facts

    @property
    def vocab_size(self) -> int:
        """Ids that the tokenizer knows; a model's embedding may have more rows."""
        return len(self._raw)

    @property
    def bos_id(self) -> int | None:
        return self._rules.bos_id

    @property
    def eos_id(self) -> int | None:
        return self._rules.eos_id

    @property
    def drops_first_space(self) -> bool:
        """Whether decoding takes away the blank that encoding put in front."""
        return self._rules.prefix != ""

    def is_special(self, id: int) -> bool:
        """Whether this id is control: it steers the model and is no part of the text."""
        return id in self.special_ids

    def special_id(self, spelling: str) -> int | None:
        """The id of a special token or mark, such as `<|im_start|>` or `<think>`."""
        return self._table.spellings.get(spelling)

    def spelling(self, id: int | None) -> str:
        """A special token as a chat template writes it; "" for None."""
        return "" if id is None else self.token_bytes(id).decode("utf-8", "replace")

    def token_bytes(self, id: int) -> bytes:
        """What this token adds to the output; nothing for the padding rows that an embedding may have."""
        if id < 0:
            raise BadRequest(f"{id} is not a token id; ids are 0 to {self.vocab_size - 1}")
        return self._raw[id] if id < len(self._raw) else b""

    def n_at_least(self, text: str) -> int:
        """A floor of the number of tokens, at once: for refusing a text that cannot fit before work is spent on it."""
        return -(-len(text) // self._longest)

    # ---------------------------------------------------------------------------------------------- text to ids

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text. A special token's spelling inside it is text. Raises BadRequest for lone surrogates."""
        _check(text)
        ids = self._encode_run(text, first=True)
        return [*self._rules.before, *ids, *self._rules.after] if add_special_tokens else ids

    def encode_parts(self, parts: Iterable[Part], *, salt: str = "") -> list[int]:
        """Ids of a rendered chat. Only control parts may name special tokens; whatever lies between two of them is one text.

        Long texts are remembered, and shared only among callers with the same `salt`. Raises BadRequest for lone surrogates.
        """
        ids: list[int] = []
        run: list[str] = []
        for piece, control in _joined(parts):
            _check(piece)
            if not control:
                run.append(piece)
                continue
            for i, span in enumerate(self._specials.split(piece)):
                if i % 2 == 0:
                    run.append(span)
                else:
                    ids.extend(self._remembered("".join(run), not ids, salt))
                    run = []
                    ids.append(self._table.spellings[span])
        ids.extend(self._remembered("".join(run), not ids, salt))
        return ids

    def _remembered(self, text: str, first: bool, salt: str) -> Sequence[int]:
        if not text:
            return ()
        key = (salt if not first else salt + "\0first", text)
        known = self._memo.get(key)
        if known is None:
            known = tuple(self._encode_run(text, first=first))
            self._memo.put(key, known)
        return known

    def _encode_run(self, text: str, *, first: bool) -> list[int]:
        """Ids of a text that stands at the very beginning (`first`) or after a special token."""
        if not text:
            return []
        rules = self._rules
        wanted = rules.prefix == "always" or (rules.prefix == "first" and first)
        if wanted and not (rules.prefix_unless_space and text.startswith((" ", "▁"))):
            text = " " + text
        ids: list[int] = []
        for i, span in enumerate(self._literals.split(text)):
            if i % 2:
                ids.append(self._table.literals[span])
            elif span:
                ids.extend(self._encoder.encode(span))
        return ids

    # ---------------------------------------------------------------------------------------------- ids to text

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Text of ids. Bytes that are no UTF-8 become U+FFFD."""
        stream = self.detokenizer(skip_special_tokens=skip_special_tokens)
        return stream.push(ids) + stream.finish()

    def detokenizer(self, prompt_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> Detokenizer:
        """For an output that comes in parts, after this prompt."""
        return Detokenizer(self, prompt_ids, skip_special_tokens=skip_special_tokens)


def _rules(vocab: Vocab, *, add_bos: bool, prefix: str) -> Rules:
    """A GGUF vocabulary's rules; `add_bos` holds where the file does not say."""
    bos = add_bos if vocab.add_bos is None else vocab.add_bos
    named = (vocab.eos_id, vocab.eot_id, *vocab.end_ids)
    return Rules(
        before=(vocab.bos_id,) if bos and vocab.bos_id is not None else (),
        after=(vocab.eos_id,) if vocab.add_eos and vocab.eos_id is not None else (),
        prefix=prefix,
        bos_id=vocab.bos_id,
        eos_id=vocab.eos_id,
        eos_ids=frozenset(i for i in named if i is not None),
    )


def _find(table: TokenTable, spelling: str) -> int | None:
    return table.spellings.get(spelling) if spelling else None


def _joined(parts: Iterable[Part]) -> list[Part]:
    """Neighbours of one kind as one part, so that a special token which a template writes in two strokes is seen whole."""
    joined: list[Part] = []
    for text, control in parts:
        if joined and joined[-1][1] == control:
            joined[-1] = (joined[-1][0] + text, control)
        elif text:
            joined.append((text, control))
    return joined


def _check(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = ord(text[error.start])
        raise BadRequest(f"the text has a lone surrogate (U+{bad:04X} at character {error.start}), which is not valid Unicode") from None
