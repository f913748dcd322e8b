"""A model that a server of another make answers for: its tokenizer and its template are over there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from camshaft.api.served import ServedModel
from camshaft.errors import BadRequest
from camshaft.tokenizer.pieces import Reader
from camshaft.types import ChatPrompt, Grammar, Upstream


def foreign_model(name: str, upstream: Upstream, max_model_len: int = 0, version: str = "") -> ServedModel:
    """An entry of /v1/models. `upstream` takes prompts as text and messages. 0 tokens: nobody knows."""
    return ServedModel(
        name=name,
        upstream=upstream,
        tokenizer=ForeignCodec(name),
        max_model_len=max_model_len,
        system_fingerprint="",
        chat=ForeignChat(name),
        version=version,
        foreign=True,
    )


class ForeignCodec:
    """Implements served.Codec by refusing what only the server itself can do."""

    special_ids: Collection[int] = frozenset()
    vocab_size = 1 << 31  # ids in logit_bias and stop_token_ids are for the server to judge

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        raise _no_tokenizer(self._model)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        raise _no_tokenizer(self._model)

    def token_bytes(self, id: int) -> bytes:
        raise _no_tokenizer(self._model)


class ForeignChat:
    """Implements served.ChatFormat: the server applies its template, holds calls to their form and takes the answer apart itself."""

    def __init__(self, model: str) -> None:
        self._model = model

    def encode(self, prompt: ChatPrompt) -> list[int]:
        raise _no_tokenizer(self._model)

    def reader_for(self, prompt: ChatPrompt, forced: str | None) -> Callable[[], Reader] | None:
        return None

    def tool_grammar(self, tools: Sequence[Mapping[str, Any]], forced: str, *, single: bool) -> Grammar:
        raise _no_tokenizer(self._model)

    def free_grammar(self, tools: Sequence[Mapping[str, Any]]) -> Grammar | None:
        return None


def _no_tokenizer(model: str) -> BadRequest:
    return BadRequest(f"{model} is answered by a server of another make, whose tokenizer is not here; ask that server", param="model")
