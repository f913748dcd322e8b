"""A model as clients see it: a name, what answers for it, and how text becomes ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from camshaft.tokenizer.pieces import Reader
from camshaft.types import ChatPrompt, Grammar, SamplingParams, Upstream


class Codec(Protocol):
    """What the edge needs of a tokenizer. Called from worker threads."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def special_ids(self) -> Collection[int]:
        """Ids that steer the model and are no part of the text."""
        ...

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def token_bytes(self, id: int) -> bytes: ...


class ChatFormat(Protocol):
    """How this model writes conversations: its template, its tool calls, its reasoning. `tokenizer.dialogue.Dialogue` is one."""

    def encode(self, prompt: ChatPrompt) -> list[int]:
        """The ids that the engine computes for this conversation."""
        ...

    def reader_for(self, prompt: ChatPrompt, forced: str | None) -> Callable[[], Reader] | None:
        """Makes a reader for each choice's text; None where all of it is content. `forced` as for `tool_grammar`, None for free."""
        ...

    def tool_grammar(self, tools: Sequence[Mapping[str, Any]], forced: str, *, single: bool) -> Grammar:
        """Constrains an answer to calls of the tool named `forced`, or of any where it is ""; to one call where `single`."""
        ...

    def free_grammar(self, tools: Sequence[Mapping[str, Any]]) -> Grammar | None:
        """Leaves the model free to call or not, but holds a call to its tool's schema; None where the format cannot tell."""
        ...


@dataclass(frozen=True)
class ServedModel:
    """One entry of /v1/models. `defaults` come from the model's own generation settings."""

    name: str
    upstream: Upstream
    tokenizer: Codec
    max_model_len: int  # tokens, prompt and answer together; 0 where that is not known
    system_fingerprint: str  # the numerics id: equal ones give equal answers
    defaults: SamplingParams = field(default_factory=SamplingParams)
    chat: ChatFormat | None = None  # None: the model has no chat template
    created: int = 0  # seconds since the epoch
    longest_s: float = 600.0  # from arrival to the end of an answer
    version: str = ""  # of several that go by this name
    foreign: bool = False  # answered by a server of another make, which has the tokenizer, the template and the grammars
