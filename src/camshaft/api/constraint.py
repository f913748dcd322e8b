"""What an answer must look like, as a Grammar; with bounds on what a client may ask to be compiled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Raw

from camshaft.config import ServerConfig
from camshaft.errors import BadGrammar, BadRequest
from camshaft.schema.fields import JsonObjectFormat, JsonSchemaFormat, ResponseFormat, StructuredOutputs, is_absent
from camshaft.types import Grammar

MAX_SOURCE_BYTES = 262_144  # of one schema or grammar
MAX_REGEX_CHARS = 8192
MAX_CHOICES = 1024


def grammar_of(response_format: ResponseFormat | None, structured: StructuredOutputs | None, config: ServerConfig) -> Grammar | None:
    """The constraint of a request, or None. Raises BadRequest for two at once and BadGrammar for one out of bounds."""
    first = _from_format(response_format, config)
    second = _from_structured(structured, config) if structured is not None else None
    if first is not None and second is not None:
        raise BadRequest("response_format and structured_outputs both constrain the answer; send one of them", param="structured_outputs")
    return first or second


@contextmanager
def blaming(param: str) -> Iterator[None]:
    """Names `param` in a BadGrammar from below, where nobody knows which field the grammar came from."""
    try:
        yield
    except BadGrammar as error:
        raise BadGrammar(error.message, param=param) from None


def checked_schema(raw: Raw, config: ServerConfig, param: str) -> Any:
    """The JSON schema in `raw` as plain data: an object, bounded in bytes and depth. Raises BadGrammar."""
    size = len(bytes(raw))
    if size > MAX_SOURCE_BYTES:
        raise BadGrammar(f"{param} has {size} bytes; at most {MAX_SOURCE_BYTES} are taken", param=param)
    try:
        schema = msgspec.json.decode(raw)
    except RecursionError:
        raise _too_deep(param, config) from None
    if not isinstance(schema, dict):
        raise BadGrammar(f"{param} must be a JSON schema, which is an object", param=param)
    if _deeper_than(schema, config.max_schema_depth):
        raise _too_deep(param, config)
    return schema


def _from_format(given: ResponseFormat | None, config: ServerConfig) -> Grammar | None:
    if isinstance(given, JsonObjectFormat):
        return Grammar("json_object")
    if isinstance(given, JsonSchemaFormat):
        if is_absent(given.json_schema.schema):
            raise BadGrammar("response_format.json_schema.schema is missing", param="response_format.json_schema.schema")
        grammar = _schema_grammar(given.json_schema.schema, config, "response_format.json_schema.schema")
        return msgspec.structs.replace(grammar, strict=bool(given.json_schema.strict))
    return None


def _from_structured(given: StructuredOutputs, config: ServerConfig) -> Grammar:
    has_json = not is_absent(given.json)
    asked = [has_json, given.regex is not None, given.choice is not None, given.grammar is not None, bool(given.json_object)]
    if sum(asked) != 1:
        raise BadRequest("structured_outputs takes exactly one of json, regex, choice, grammar and json_object", param="structured_outputs")
    if has_json:
        return _structured_json(given.json, config)
    if given.regex is not None:
        return Grammar("regex", _bounded(given.regex, MAX_REGEX_CHARS, "structured_outputs.regex"))
    if given.choice is not None:
        return _choice(given.choice)
    if given.grammar is not None:
        return Grammar("lark", _bounded(given.grammar, MAX_SOURCE_BYTES, "structured_outputs.grammar"))
    return Grammar("json_object")


def _structured_json(raw: Raw, config: ServerConfig) -> Grammar:
    param = "structured_outputs.json"
    if not bytes(raw).startswith(b'"'):
        return _schema_grammar(raw, config, param)
    # vLLM's clients may send the schema as a string.
    inner = msgspec.json.decode(raw, type=str)
    try:
        return _schema_grammar(msgspec.json.decode(inner, type=Raw), config, param)
    except RecursionError:
        raise _too_deep(param, config) from None
    except msgspec.DecodeError:
        raise BadGrammar(f"{param} is neither a JSON schema nor a string that holds one", param=param) from None


def _schema_grammar(raw: Raw, config: ServerConfig, param: str) -> Grammar:
    checked_schema(raw, config, param)
    return Grammar("json_schema", bytes(raw).decode())


def _choice(choices: list[str]) -> Grammar:
    param = "structured_outputs.choice"
    if not 1 <= len(choices) <= MAX_CHOICES or not all(choices):
        raise BadGrammar(f"{param} takes 1 to {MAX_CHOICES} strings that are not empty", param=param)
    return Grammar("regex", _bounded("|".join(f"({re.escape(c)})" for c in choices), MAX_SOURCE_BYTES, param))


def _too_deep(param: str, config: ServerConfig) -> BadGrammar:
    return BadGrammar(f"{param} is nested deeper than {config.max_schema_depth} levels; flatten it", param=param)


def _bounded(source: str, limit: int, param: str) -> str:
    if not 0 < len(source) <= limit:
        raise BadGrammar(f"{param} has {len(source)} characters; 1 to {limit} are taken", param=param)
    return source


def _deeper_than(value: Any, limit: int) -> bool:
    """Whether lists and objects nest more than `limit` levels. Walks level by level, so that depth costs no stack."""
    level = [value]
    for _ in range(limit):
        inner = [v for node in level for v in (node.values() if isinstance(node, dict) else node)]
        level = [v for v in inner if isinstance(v, dict | list)]
        if not level:
            return False
    return True
