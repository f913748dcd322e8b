"""`/v1/completions`: request, answer and stream chunks, in the older shape."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from camshaft.schema.fields import (
    Bias,
    Count,
    CountOrZero,
    MinP,
    Name,
    Penalty,
    Priority,
    RepetitionPenalty,
    ResponseFormat,
    Salt,
    Seconds,
    Seed,
    Stop,
    StreamOptions,
    StructuredOutputs,
    Temperature,
    TokenId,
    TopK,
    TopP,
    Usage,
    absent,
)


class CompletionRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`prompt` is a text, a list of texts, a list of token ids, or a list of such lists. null means the same as absent everywhere."""

    prompt: str | list[int | str | list[int]]
    model: Name | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = None
    # How it is drawn.
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    repetition_penalty: RepetitionPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | None = None
    seed: Seed | None = None
    n: Count | None = None
    logprobs: CountOrZero | None = None
    # Where it ends.
    max_tokens: CountOrZero | None = None  # 0 only with echo
    min_tokens: CountOrZero | None = None
    stop: Stop | list[Stop] | None = None
    stop_token_ids: list[TokenId] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    # What it must look like.
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    # How it is served.
    add_special_tokens: bool | None = None
    priority: Priority | None = None
    cache_salt: Salt | None = None
    session_id: Name | None = None
    timeout: Seconds | None = None
    # What common clients send and nothing here reads.
    user: str | None = None
    metadata: Raw = field(default_factory=absent)
    store: bool | None = None
    service_tier: str | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
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
    finish_reason: Literal["stop", "length"] | None
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
