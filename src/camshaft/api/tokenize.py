"""`POST /tokenize` and `POST /detokenize`. Both run off the event loop when there is much to do."""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import UNSET

from camshaft.api.call import Call
from camshaft.api.chat_plan import chat_prompt, plain_tools
from camshaft.api.edge import Edge
from camshaft.api.sampling import check_id
from camshaft.api.served import ServedModel
from camshaft.api.tokens import token_text
from camshaft.errors import BadRequest
from camshaft.schema.decode import decode
from camshaft.schema.messages import Message, text_of
from camshaft.schema.tokens import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse

# Text costs far more to split into tokens than JSON to parse, so that the hop to a thread pays off sooner.
WORK_PER_BYTE = 32
MAX_CHARS = 524_288  # of a prompt, or of a conversation; a thread that others need too works on it for less than half a second


async def tokenize(edge: Edge, call: Call) -> None:
    body = await call.body(edge.config.max_body_bytes)
    await call.reply(200, await edge.off_loop(len(body) * WORK_PER_BYTE, partial(_tokenize, edge, call, body)))


async def detokenize(edge: Edge, call: Call) -> None:
    body = await call.body(edge.config.max_body_bytes)
    await call.reply(200, await edge.off_loop(len(body) * WORK_PER_BYTE, partial(_detokenize, edge, call, body)))


def _tokenize(edge: Edge, call: Call, body: bytes) -> bytes:
    fields = decode(body, TokenizeRequest, edge.unknown)
    model = edge.model(fields.model, call)
    if (fields.prompt is None) == (fields.messages is None):
        raise BadRequest("send either prompt or messages", param="prompt")
    _bound(fields)
    if fields.prompt is not None:
        ids = model.tokenizer.encode(fields.prompt, add_special_tokens=fields.add_special_tokens is not False)
    else:
        ids = _chat_ids(edge, model, fields)
    strs = [token_text(model.tokenizer.token_bytes(i)) for i in ids] if fields.return_token_strs else UNSET
    return msgspec.json.encode(TokenizeResponse(count=len(ids), max_model_len=model.max_model_len, tokens=ids, token_strs=strs))


def _bound(fields: TokenizeRequest) -> None:
    """Raises BadRequest for a text that would take long."""
    texts = [fields.prompt] if fields.prompt is not None else [text_of(message.content) for message in fields.messages or ()]
    n_chars = sum(len(text) for text in texts if text is not None)
    if n_chars > MAX_CHARS:
        param = "prompt" if fields.prompt is not None else "messages"
        raise BadRequest(
            f"{param} has {n_chars:,} characters; at most {MAX_CHARS:,} are taken in one call, so send it in parts", param=param
        )


class _Conversation(msgspec.Struct, frozen=True):
    """The fields of a /tokenize call that make a prompt, with messages that are there."""

    messages: list[Message]
    add_generation_prompt: bool | None
    continue_final_message: bool | None
    chat_template_kwargs: msgspec.Raw


def _chat_ids(edge: Edge, model: ServedModel, fields: TokenizeRequest) -> list[int]:
    if model.chat is None:
        raise BadRequest(f"{model.name} has no chat template; send a prompt instead", param="messages")
    conversation = _Conversation(
        fields.messages or [], fields.add_generation_prompt, fields.continue_final_message, fields.chat_template_kwargs
    )
    return model.chat.encode(chat_prompt(conversation, plain_tools(fields.tools or (), edge.config)))


def _detokenize(edge: Edge, call: Call, body: bytes) -> bytes:
    fields = decode(body, DetokenizeRequest, edge.unknown)
    model = edge.model(fields.model, call)
    if fields.tokens:
        check_id(max(fields.tokens), model, "tokens")
    return msgspec.json.encode(DetokenizeResponse(model.tokenizer.decode(fields.tokens, skip_special_tokens=False)))
