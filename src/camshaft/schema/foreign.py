"""What other servers answer in OpenAI's shape, read leniently: only what is used is named, and anything else may be there.

Servers differ in what they leave out or set to null, so that everything here may be.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType


class ForeignFunction(Struct, frozen=True, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None  # an object from a few servers, whole


class ForeignCall(Struct, frozen=True):
    """A call or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: ForeignFunction | None = None


class ForeignDelta(Struct, frozen=True):
    """A piece of a message, or all of it. vLLM says `reasoning`, most others `reasoning_content`."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[ForeignCall] | None = None


class ForeignTop(Struct, frozen=True, gc=False):
    token: str
    logprob: float
    bytes: list[int] | None = None


class ForeignLogprob(Struct, frozen=True):
    token: str
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: list[ForeignTop] | None = None


class ForeignLogprobs(Struct, frozen=True):
    """Chat's `content`, or the older shape's parallel lists."""

    content: list[ForeignLogprob] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class ForeignChoice(Struct, frozen=True):
    index: int = 0
    delta: ForeignDelta | None = None
    message: ForeignDelta | None = None  # where the answer is whole
    text: str | None = None
    logprobs: ForeignLogprobs | None = None
    finish_reason: str | None = None
    stop_reason: str | int | None = None


class ForeignDetails(Struct, frozen=True, gc=False):
    cached_tokens: int | None = None


class ForeignUsage(Struct, frozen=True):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: ForeignDetails | None = None


class ForeignChunk(Struct, frozen=True):
    """A stream's chunk or a whole answer. `error` is there where the server failed in mid-stream."""

    choices: list[ForeignChoice] | None = None
    usage: ForeignUsage | None = None
    error: Raw | UnsetType = UNSET


class ForeignError(Struct, frozen=True):
    message: str | None = None
    param: str | None = None
    code: str | int | None = None
    type: str | None = None


class ForeignModel(Struct, frozen=True):
    id: str
    max_model_len: int | None = None


class ForeignModels(Struct, frozen=True):
    data: list[ForeignModel] = []
