"""What chat and text completions are asked alike: how to draw, where to end, how to be served."""

from __future__ import annotations

from msgspec import Raw, Struct, field

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
    absent,
)


class CompletionFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """null means the same as absent everywhere: the model's own default."""

    model: Name | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
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
    # Where it ends.
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
