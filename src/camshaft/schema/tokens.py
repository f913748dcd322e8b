"""`/tokenize` and `/detokenize`, in vLLM's shapes."""

from __future__ import annotations

from msgspec import UNSET, Raw, Struct, UnsetType, field

from camshaft.schema.fields import Name, TokenId, absent
from camshaft.schema.messages import Message, Tool


class TokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either `prompt` or `messages`. By default a prompt gets the model's special tokens and a conversation only its template's."""

    model: Name | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[Tool] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Raw = field(default_factory=absent)
    return_token_strs: bool | None = None


class TokenizeResponse(Struct, frozen=True, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | UnsetType = UNSET


class DetokenizeRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: Name | None = None
    tokens: list[TokenId]


class DetokenizeResponse(Struct, frozen=True):
    prompt: str
