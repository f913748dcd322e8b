"""`/v1/chat/completions`: request, answer and stream chunks."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType, field

from camshaft.schema.common import CompletionFields
from camshaft.schema.fields import Count, CountOrZero, Usage, absent
from camshaft.schema.messages import Message, Tool, ToolChoice

FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class ChatRequest(CompletionFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`POST /v1/chat/completions`."""

    messages: list[Message]
    logprobs: bool | None = None
    top_logprobs: CountOrZero | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    # How the conversation becomes a prompt.
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Raw = field(default_factory=absent)
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool | None = None
    # What common clients send and nothing here reads.
    prompt_cache_retention: str | None = None
    verbosity: str | None = None
    modalities: list[Literal["text"]] | None = None


class ChatTopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None


class ChatLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[ChatTopLogprob]


class ChatLogprobs(Struct, frozen=True):
    content: list[ChatLogprob]
    refusal: None = None


class AnswerFunction(Struct, frozen=True):
    name: str
    arguments: str


class AnswerToolCall(Struct, frozen=True):
    id: str
    function: AnswerFunction
    type: Literal["function"] = "function"


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """Content and refusal are there even when they are null, as OpenAI sends them; what is UNSET is left out."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[AnswerToolCall] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True, kw_only=True):
    index: int
    message: AnswerMessage
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason
    stop_reason: str | int | UnsetType = UNSET  # which stop string or token id it was


class ChatCompletion(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChatChoice]
    usage: Usage


class FunctionDelta(Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(Struct, frozen=True, kw_only=True):
    """The first delta of a call has id, type and name; the later ones add to the arguments."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType | None = UNSET
    refusal: UnsetType | None = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[ToolCallDelta] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True, kw_only=True):
    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: str | int | UnsetType = UNSET


class ChatChunk(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str
    choices: tuple[ChunkChoice, ...]
    usage: Usage | UnsetType | None = UNSET  # null in every chunk but the last, when usage was asked for
