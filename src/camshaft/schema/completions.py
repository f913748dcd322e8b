"""`/v1/completions`: request, answer and stream chunks, in the older shape."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from camshaft.schema.common import CompletionFields
from camshaft.schema.fields import CountOrZero, Usage


class CompletionRequest(CompletionFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`prompt` is a text, a list of texts, a list of token ids, or a list of such lists."""

    prompt: str | list[int | str | list[int]]
    echo: bool | None = None
    logprobs: CountOrZero | None = None
    max_tokens: CountOrZero | None = None  # 0 only with echo
    add_special_tokens: bool | None = None
    best_of: Literal[1] | None = None


class LegacyLogprobs(Struct, frozen=True):
    """Parallel lists, one entry per token. The first prompt token has null for both log-probabilities: nothing predicts it."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: LegacyLogprobs | None = None
    finish_reason: Literal["stop", "length", "content_filter"] | None
    stop_reason: str | int | UnsetType = UNSET


class Completion(Struct, frozen=True, kw_only=True):
    """Also a stream's chunk, whose `finish_reason` is null in all but a choice's last."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[CompletionChoice, ...]
    usage: Usage | UnsetType | None = UNSET
