"""Codec: what the engine needs of a tokenizer. `camshaft.tokenizer.Tokenizer` is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from camshaft.sample.grammar import Vocabulary
from camshaft.types import ChatPrompt


class TextStream(Protocol):
    """Text of one output, whole characters only."""

    def push(self, ids: Sequence[int]) -> str: ...

    def finish(self) -> str: ...


class Codec(Vocabulary, Protocol):
    """A vocabulary that also turns ids into text. Safe to use from several threads at once."""

    def n_at_least(self, text: str) -> int: ...

    def detokenizer(self, prompt_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> TextStream: ...


Render = Callable[[ChatPrompt, str], Sequence[int]]  # a chat, and the salt under which its parts may be remembered -> ids


class Speech(NamedTuple):
    """How a model's ids become text and back."""

    codec: Codec
    render: Render | None = None  # None: the model has no chat template
