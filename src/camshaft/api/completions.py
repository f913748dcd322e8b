"""`POST /v1/completions`: text completions, and the log-probabilities of a prompt (echo, logprobs, max_tokens 0)."""

from __future__ import annotations

from camshaft.api.answering import answer
from camshaft.api.call import Call
from camshaft.api.completion_plan import completion_plan
from camshaft.api.completion_writer import CompletionWriter
from camshaft.api.edge import Edge
from camshaft.api.plan import Origin
from camshaft.schema.completions import CompletionRequest
from camshaft.schema.decode import decode

OPENING_CHARS = 512  # of a text, which tell one use of it from another


async def completions(edge: Edge, call: Call) -> None:
    await answer(edge, call, _read)


def _read(edge: Edge, call: Call, body: bytes) -> CompletionWriter:
    fields = decode(body, CompletionRequest, edge.unknown)
    model = edge.model(fields.model, call, fields.session_id or "", fields.prompt[:OPENING_CHARS] if isinstance(fields.prompt, str) else "")
    return CompletionWriter(*completion_plan(fields, model, edge.config, Origin.of("cmpl-", call, edge.clock)))
