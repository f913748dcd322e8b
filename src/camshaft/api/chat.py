"""`POST /v1/chat/completions`."""

from __future__ import annotations

from camshaft.api.answering import answer
from camshaft.api.call import Call
from camshaft.api.chat_plan import chat_plan
from camshaft.api.chat_writer import ChatWriter
from camshaft.api.edge import Edge
from camshaft.api.plan import Origin
from camshaft.schema.chat import ChatRequest
from camshaft.schema.decode import decode
from camshaft.schema.messages import UserMessage, text_of

OPENING_CHARS = 4096  # of it, which tell conversations apart


async def chat_completions(edge: Edge, call: Call) -> None:
    await answer(edge, call, _read)


def _read(edge: Edge, call: Call, body: bytes) -> ChatWriter:
    fields = decode(body, ChatRequest, edge.unknown)
    model = edge.model(fields.model, call, fields.session_id or "", _opening(fields))
    return ChatWriter(*chat_plan(fields, model, edge.config, Origin.of("chatcmpl-", call, edge.clock)))


def _opening(fields: ChatRequest) -> str:
    """What the user said first, which every later turn of a conversation repeats."""
    for message in fields.messages:
        if isinstance(message, UserMessage):
            return (text_of(message.content) or "")[:OPENING_CHARS]
    return ""
