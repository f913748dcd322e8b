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


async def chat_completions(edge: Edge, call: Call) -> None:
    await answer(edge, call, _read)


def _read(edge: Edge, call: Call, body: bytes) -> ChatWriter:
    fields = decode(body, ChatRequest, edge.unknown)
    origin = Origin("chatcmpl-", call.tenant, edge.clock.now())
    return ChatWriter(*chat_plan(fields, edge.model(fields.model), edge.config, origin))
