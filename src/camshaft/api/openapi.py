"""`GET /openapi.json` and `GET /docs`, made from the very types that parse requests, so that they cannot go stale."""

from __future__ import annotations

import html
from functools import cache
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from camshaft.api.admin import own_version
from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.schema.chat import ChatChunk, ChatCompletion, ChatRequest
from camshaft.schema.completions import Completion, CompletionRequest
from camshaft.schema.failure import ErrorBody
from camshaft.schema.models import ModelCard, ModelList
from camshaft.schema.tokens import DetokenizeRequest, DetokenizeResponse, TokenizeRequest, TokenizeResponse

_REF = "#/components/schemas/{name}"


class Operation(NamedTuple):
    method: str
    path: str
    summary: str
    asks: type[Struct] | None = None
    gives: type[Struct] | None = None
    streams: type[Struct] | None = None


OPERATIONS = (
    Operation("post", "/v1/chat/completions", "Answer a conversation.", ChatRequest, ChatCompletion, ChatChunk),
    Operation(
        "post", "/v1/completions", "Continue a text, or score it (echo, logprobs, max_tokens 0).", CompletionRequest, Completion, Completion
    ),
    Operation("get", "/v1/models", "The models served here.", None, ModelList),
    Operation("get", "/v1/models/{model}", "One of them.", None, ModelCard),
    Operation("post", "/tokenize", "Text or a conversation as token ids.", TokenizeRequest, TokenizeResponse),
    Operation("post", "/detokenize", "Token ids as text.", DetokenizeRequest, DetokenizeResponse),
    Operation("get", "/health", "Whether the process answers. Needs no key."),
    Operation("get", "/ready", "Whether it takes requests: loaded, not shutting down. Needs no key."),
    Operation("get", "/metrics", "Numbers for Prometheus."),
    Operation("get", "/version", "The version. Needs no key."),
)


async def openapi_json(edge: Edge, call: Call) -> None:
    await call.reply(200, msgspec.json.encode(description()))


async def docs_page(edge: Edge, call: Call) -> None:
    await call.reply(200, _page().encode(), b"text/html; charset=utf-8")


@cache
def description() -> dict[str, Any]:
    """The OpenAPI 3.1 description of this server."""
    types: list[type[Struct]] = [ErrorBody]
    for op in OPERATIONS:
        types += [t for t in (op.asks, op.gives, op.streams) if t is not None and t not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    refs = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for op in OPERATIONS:
        paths.setdefault(op.path, {})[op.method] = _operation(op, refs)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Camshaft", "version": own_version(), "description": "An OpenAI-compatible server."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{"key": []}, {}],
    }


def _operation(op: Operation, refs: dict[type[Struct], dict[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if op.gives is not None:
        content["application/json"] = {"schema": refs[op.gives]}
    if op.streams is not None:
        content["text/event-stream"] = {"schema": refs[op.streams]}
    failed = {"description": "An error.", "content": {"application/json": {"schema": refs[ErrorBody]}}}
    shown: dict[str, Any] = {
        "summary": op.summary,
        "responses": {"200": {"description": "OK", **({"content": content} if content else {})}, "default": failed},
    }
    if op.asks is not None:
        shown["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[op.asks]}}}
    if "{model}" in op.path:
        shown["parameters"] = [{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}]
    return shown


@cache
def _page() -> str:
    """One page without scripts or anything from elsewhere."""
    components = description()["components"]["schemas"]
    parts = [_HEAD]
    for op in OPERATIONS:
        parts.append(f"<h2><code>{op.method.upper()} {html.escape(op.path)}</code></h2><p>{html.escape(op.summary)}</p>")
        if op.asks is not None:
            parts.append(_table(components[op.asks.__name__]))
    parts.append('<p>Everything, types of answers included: <a href="openapi.json">openapi.json</a></p></html>')
    return "".join(parts)


def _table(schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{html.escape(name)}</code>{' *' if name in required else ''}</td><td>{html.escape(_kind(field))}</td></tr>"
        for name, field in schema["properties"].items()
    )
    return f"<table><tr><th>field</th><th>value</th></tr>{rows}</table>"


def _kind(field: dict[str, Any]) -> str:
    """A field's type in a few words."""
    if "anyOf" in field:
        return " or ".join(kind for kind in (_kind(f) for f in field["anyOf"]) if kind != "null")
    if "$ref" in field:
        return str(field["$ref"]).rpartition("/")[2]
    if "enum" in field:
        return " or ".join(map(str, field["enum"]))
    if field.get("type") == "array":
        return f"list of ({_kind(field.get('items', {}))})"
    bounds = ", ".join(f"{words} {field[key]:g}" for key, words in _BOUNDS.items() if key in field)
    kind = str(field.get("type", "any JSON"))
    return f"{kind}, {bounds}" if bounds else kind


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "minLength": "length at least",
    "maxLength": "length at most",
}

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Camshaft API</title>
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}
td,th{border-top:1px solid #8884;padding:.2rem 1rem .2rem 0;text-align:left;vertical-align:top}code{font-size:.95em}</style>
<h1>Camshaft API</h1><p>Compatible with OpenAI's. A field marked * is needed; null means the same as leaving it out.</p>"""
