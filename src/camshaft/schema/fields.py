"""Field types that several requests share, with their ranges. A range here is also what the OpenAPI page shows.

msgspec refuses NaN and infinities while parsing, since JSON has none, so that the bounds below meet finite numbers only.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Raw, Struct, field

MAX_STOP_CHARS = 1024
MAX_NAME_CHARS = 256
MAX_SALT_CHARS = 1024

Temperature = Annotated[float, Meta(ge=0, le=2)]
TopP = Annotated[float, Meta(gt=0, le=1)]
TopK = Annotated[int, Meta(ge=-1, le=1 << 31)]  # -1 and 0 both turn it off, as clients of either habit expect
MinP = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
RepetitionPenalty = Annotated[float, Meta(gt=0, le=100)]
Seed = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=1, le=1 << 31)]
CountOrZero = Annotated[int, Meta(ge=0, le=1 << 31)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Priority = Annotated[int, Meta(ge=0, le=1000)]
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Stop = Annotated[str, Meta(min_length=1, max_length=MAX_STOP_CHARS)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
Salt = Annotated[str, Meta(min_length=1, max_length=MAX_SALT_CHARS)]
# `$` would let a final newline through.
FunctionName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,64}(?![\s\S])")]


def absent() -> Raw:
    """The default of a Raw field.

    Raw keeps the bytes as they came: what nobody reads is never built, and a schema is built only after its size is known.
    """
    return Raw(b"null")


def is_absent(raw: Raw) -> bool:
    """Whether a Raw field was left out or null."""
    return bytes(raw) == b"null"


class StreamOptions(Struct, frozen=True, forbid_unknown_fields=True):
    include_usage: bool | None = False
    continuous_usage_stats: Literal[False] | None = False
    include_obfuscation: bool | None = None  # padding against traffic analysis; harmless to leave out


class TextFormat(Struct, frozen=True, forbid_unknown_fields=True, tag="text"):
    pass


class JsonObjectFormat(Struct, frozen=True, forbid_unknown_fields=True, tag="json_object"):
    pass


class JsonSchema(Struct, frozen=True, forbid_unknown_fields=True):
    name: FunctionName
    description: str | None = None
    schema: Raw = field(default_factory=absent)
    strict: bool | None = None  # always enforced


class JsonSchemaFormat(Struct, frozen=True, forbid_unknown_fields=True, tag="json_schema"):
    json_schema: JsonSchema


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StructuredOutputs(Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's spelling of a constraint. Exactly one field is set."""

    json: Raw = field(default_factory=absent)  # a schema, or a schema in a string
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None  # Lark
    json_object: bool | None = None


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int  # 0, not absent, where nothing was cached


class Usage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


def plain(raw: Raw) -> Any:
    """The value that a Raw field holds. Raises RecursionError for one nested too deeply."""
    return msgspec.json.decode(raw)
