"""Grammar: outputs held to a JSON schema, a regular expression or a Lark grammar, by llguidance."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Protocol

from camshaft.errors import BadGrammar, EngineFault
from camshaft.types import Grammar

if TYPE_CHECKING:  # imported with the first grammar: most servers never see one
    import llguidance

MAX_SOURCE_BYTES = 256_000
MAX_DEPTH = 64  # brackets within brackets; deeper ones cost stack in every parser on the way
_MAX_CACHED = 64
_PROBE_TOKENS = 3
_NAMES = {"json_object": "JSON grammar", "json_schema": "JSON schema", "regex": "regular expression", "lark": "Lark grammar"}


class Vocabulary(Protocol):
    """What a grammar needs of a tokenizer."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def eos_ids(self) -> frozenset[int]: ...

    def token_bytes(self, id: int) -> bytes: ...

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]: ...


class Matcher:
    """One output's place in its grammar. Used by one thread at a time."""

    def __init__(self, matcher: llguidance.LLMatcher, n_vocab: int) -> None:
        """Raises BadGrammar where not even the first token can be found within the limits."""
        self._matcher = matcher
        self._n_bytes = -(-n_vocab // 32) * 4
        self.mask: bytes = self._next_mask()  # bits of the tokens that may come next

    def push(self, id: int) -> bool:
        """Go on by one token; True when nothing but the end may follow.

        Raises EngineFault for a token that was not allowed, BadGrammar where the grammar has become too costly to follow.
        """
        was_allowed = self.mask[id >> 3] >> (id & 7) & 1
        if not self._matcher.consume_token(id):
            if was_allowed:
                raise _too_costly(self._matcher)
            raise EngineFault(f"token {id} was sampled although the grammar does not allow it: {_line(self._matcher.get_error())}")
        if self._matcher.is_stopped():
            return True
        self.mask = self._next_mask()
        return False

    def _next_mask(self) -> bytes:
        # The library's own may be a word longer.
        mask: bytes = self._matcher.compute_bitmask()[: self._n_bytes]
        if self._matcher.is_error():
            raise _too_costly(self._matcher)
        return mask


class GrammarCompiler:
    """Grammars of one vocabulary. Compiling may take a while, so it is called from worker threads; everything is bounded."""

    def __init__(self, vocabulary: Vocabulary, n_vocab: int) -> None:
        """`n_vocab`: rows of the model's head, at least the tokenizer's vocabulary; masks have that many bits."""
        self._vocabulary = vocabulary
        self._n_vocab = n_vocab
        self._lock = threading.Lock()
        self._tokenizer: llguidance.LLTokenizer | None = None
        self._compiled: OrderedDict[Grammar, llguidance.LLMatcher] = OrderedDict()

    def matcher(self, grammar: Grammar) -> Matcher:
        """A fresh matcher. Raises BadGrammar, saying what is wrong with the source."""
        if len(grammar.source.encode()) > MAX_SOURCE_BYTES:
            raise BadGrammar(f"the {_name(grammar)} has more than {MAX_SOURCE_BYTES} bytes", param="response_format")
        if _depth(grammar.source) > MAX_DEPTH:
            raise BadGrammar(f"the {_name(grammar)} nests deeper than {MAX_DEPTH} brackets", param="response_format")
        with self._lock:
            known = self._compiled.get(grammar)
            if known is not None:
                self._compiled.move_to_end(grammar)
                return Matcher(known.deep_copy(), self._n_vocab)
        fresh = self._compile(grammar)
        self._probe(fresh)
        with self._lock:
            self._compiled[grammar] = fresh
            while len(self._compiled) > _MAX_CACHED:
                self._compiled.popitem(last=False)
        return Matcher(fresh.deep_copy(), self._n_vocab)

    def _compile(self, grammar: Grammar) -> llguidance.LLMatcher:
        import llguidance

        try:
            source = _source(grammar)
        except ValueError as error:
            raise BadGrammar(f"the {_name(grammar)} is not valid: {_line(str(error))}", param="response_format") from None
        # A fraction of the defaults: with those, one hostile expression costs seconds of the engine thread.
        limits = llguidance.LLParserLimits(
            initial_lexer_fuel=200_000, step_lexer_fuel=50_000, max_lexer_states=50_000, max_grammar_size=200_000, verbose_errors=False
        )
        matcher = llguidance.LLMatcher(self._ll_tokenizer(), source, log_level=0, limits=limits)
        if matcher.is_error():
            raise BadGrammar(f"the {_name(grammar)} is not valid: {_line(matcher.get_error())}", param="response_format")
        return matcher

    def _probe(self, fresh: llguidance.LLMatcher) -> None:
        """Follow it for a few tokens: some grammars compile and then cost too much at the first step. Raises BadGrammar."""
        matcher = Matcher(fresh.deep_copy(), self._n_vocab)
        for _ in range(_PROBE_TOKENS):
            bits = int.from_bytes(matcher.mask, "little")
            if not bits or matcher.push((bits & -bits).bit_length() - 1):
                return

    def _ll_tokenizer(self) -> llguidance.LLTokenizer:
        import llguidance

        with self._lock:
            if self._tokenizer is None:
                wrapper = llguidance.TokenizerWrapper(_Tokens(self._vocabulary, self._n_vocab))
                self._tokenizer = llguidance.LLTokenizer(wrapper)
            return self._tokenizer


class _Tokens:
    """A vocabulary in the shape that llguidance asks for."""

    def __init__(self, vocabulary: Vocabulary, n_vocab: int) -> None:
        eos = sorted(vocabulary.eos_ids)
        self.eos_token_id = eos[0] if eos else vocabulary.vocab_size - 1
        self.bos_token_id: int | None = None
        # The rows that pad the head have no bytes, and what has no bytes is never allowed.
        self.tokens = [vocabulary.token_bytes(i) if i < vocabulary.vocab_size else b"" for i in range(n_vocab)]
        self.special_token_ids = sorted(vocabulary.special_ids | set(eos))
        self._encode = vocabulary.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)


def _source(grammar: Grammar) -> str:
    """llguidance's own form of the grammar. Raises ValueError for JSON that is none."""
    import llguidance

    if grammar.kind == "regex":
        return str(llguidance.LLMatcher.grammar_from_regex(grammar.source))
    if grammar.kind == "lark":
        return str(llguidance.LLMatcher.grammar_from_lark(grammar.source))
    schema = '{"type": "object"}' if grammar.kind == "json_object" else grammar.source
    # A model that may write blanks wherever JSON allows them sometimes writes nothing else until its tokens run out.
    blanks = r"[\x20\x0A\x0D\x09]{0,8}"
    return str(
        llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_flexible": False, "whitespace_pattern": blanks})
    )


def _name(grammar: Grammar) -> str:
    return _NAMES[grammar.kind]


def _depth(source: str) -> int:
    """How deep brackets nest, quoted ones included: an upper bound, at the price of one pass."""
    depth = deepest = 0
    for char in source:
        if char in "{[(":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "}])":
            depth -= 1
    return deepest


def _too_costly(matcher: llguidance.LLMatcher) -> BadGrammar:
    return BadGrammar(f"the grammar costs too much to follow; make it simpler: {_line(matcher.get_error())}", param="response_format")


def _line(message: str) -> str:
    """A message of the library on one line."""
    return " ".join(message.replace("<non-verbose/>", "").split())[:300]
