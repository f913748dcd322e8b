"""JSON bytes to a request, strictly: what is wrong is named, with the nearest thing that would have been right."""

from __future__ import annotations

import re
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.inspect import ListType, RawType, StructType, Type, UnionType, type_info

from camshaft.config import suggest
from camshaft.errors import BadRequest

S = TypeVar("S", bound=Struct)
Unknown = Literal["reject", "ignore"]

# Known to OpenAI's or vLLM's API and not served here. The text says what to do instead.
UNSUPPORTED = {
    "functions": "use tools",
    "function_call": "use tool_choice",
    "audio": "only text is served",
    "prediction": "leave it out",
    "web_search_options": "only the model's own answer is served",
    "moderation": "leave it out",
    "suffix": "leave it out",
    "use_beam_search": "leave it out",
    "length_penalty": "leave it out",
    "logit_processors": "use logit_bias",
    "allowed_token_ids": "use logit_bias or structured_outputs",
    "bad_words": "use logit_bias",
    "truncate_prompt_tokens": "shorten the prompt yourself; nothing is cut silently",
    "prompt_logprobs": "use /v1/completions with echo, logprobs and max_tokens 0",
    "chat_template": "set it where the server starts; templates from clients are not run",
    "documents": "put them into a message",
    "guided_json": "use structured_outputs.json or response_format",
    "guided_regex": "use structured_outputs.regex",
    "guided_choice": "use structured_outputs.choice",
    "guided_grammar": "use structured_outputs.grammar",
    "grammar": "use structured_outputs.grammar",
    "json_schema": "use response_format or structured_outputs.json",
    "thinking_token_budget": "use max_tokens",
}

MAX_SAID_CHARS = 300

# Parsing is one call into C that lets no other thread run, so that its longest time is every other client's pause. These
# keep it near 50 ms: an object or array costs a microsecond, a string a fifth of one, a number less; text inside strings is all but free.
COUNTED_BYTES = 65_536  # a smaller body cannot hold enough to matter
MAX_ARRAYS_AND_OBJECTS = 32_768
MAX_STRINGS = 65_536
MAX_VALUES = 1_048_576

_AT = re.compile(r"^(?P<what>.*?)(?: - at `(?P<where>(?:key in )?\$[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>.*?)`?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]*)`$")
_TICKED = re.compile(r"`([^`]*)`")
_KINDS = {"object": "an object", "array": "an array", "str": "a string", "int": "an integer", "float": "a number", "bool": "true or false"}


def decode(body: bytes, kind: type[S], unknown: Unknown = "reject") -> S:
    """The request in `body`. Raises BadRequest, with `param` where a field is at fault."""
    _bound(body)
    try:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            if unknown == "reject" or not _UNKNOWN.match(_what(error)):
                raise
        # Slow, since everything is built before it is checked; but only who sends unknown fields pays.
        return msgspec.convert(_prune(msgspec.json.decode(body), type_info(kind)), kind)
    except RecursionError:
        raise BadRequest("the JSON is nested too deeply; flatten it") from None
    except msgspec.ValidationError as error:
        raise _explain(_shortened(str(error)), kind) from None
    except msgspec.DecodeError as error:
        if not body:
            raise BadRequest("the body is empty; send a JSON object") from None
        raise BadRequest(f"the body is not valid JSON ({_malformed(str(error))})") from None


def _bound(body: bytes) -> None:
    """Refuses what would take long to parse, by counting what lies outside of strings. Raises BadRequest."""
    if len(body) <= COUNTED_BYTES:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # what is left of quotes begins or ends a string
    _at_most(plain.count(b'"') // 2, MAX_STRINGS, "strings")
    outside = b"".join(plain.split(b'"')[::2])
    _at_most(outside.count(b"[") + outside.count(b"{"), MAX_ARRAYS_AND_OBJECTS, "arrays and objects")
    _at_most(outside.count(b","), MAX_VALUES, "values")


def _at_most(n: int, most: int, what: str) -> None:
    if n > most:
        raise BadRequest(f"the body holds {n:,} {what}; at most {most:,} are taken in one request, so send several")


def _shortened(message: str) -> str:
    """A message that quotes megabytes of the client's, without its middle: what is wrong stands in front, and where at the end."""
    return message if len(message) <= 4 * MAX_SAID_CHARS else message[: 2 * MAX_SAID_CHARS] + message[-2 * MAX_SAID_CHARS :]


def _what(error: msgspec.ValidationError) -> str:
    match = _AT.match(_shortened(str(error)))
    return match["what"] if match else str(error)


def _malformed(what: str) -> str:
    # msgspec says this of an unpaired surrogate escape, as well as of a body that ends early.
    return (
        "it ends early, or a \\u escape is half of a surrogate pair"
        if what == "Input data was truncated"
        else what.removeprefix("JSON is malformed: ")
    )


def _explain(error: str, kind: type[Struct]) -> BadRequest:
    """msgspec's message as ours: which field, what is wrong, what would be right."""
    match = _AT.match(error)
    what = match["what"] if match else error
    if len(what) > MAX_SAID_CHARS:
        # It repeats what the client sent, which may be megabytes.
        what = what[:MAX_SAID_CHARS] + "..."
    path = ((match["where"] if match else None) or "$").removeprefix("key in ").removeprefix("$").removeprefix(".").replace("[...]", "")
    if unknown := _UNKNOWN.match(what):
        name = unknown["name"]
        full = f"{path}.{name}" if path else name
        if (hint := UNSUPPORTED.get(name)) is not None:
            return BadRequest(f"{full} is not supported: {hint}", param=full)
        return BadRequest(f"{full} is not a known field{suggest(name, _names(kind))}", param=full)
    if missing := _MISSING.match(what):
        full = f"{path}.{missing['name']}" if path else missing["name"]
        return BadRequest(f"{full} is missing", param=full)
    if not path:
        return BadRequest(f"the body must be a JSON object ({_plain(what)})")
    hint = "; only text parts are served" if ".content[" in path and path.endswith(".type") else ""
    return BadRequest(f"{path}: {_plain(what)}{hint}", param=path)


def _plain(what: str) -> str:
    """The types that msgspec names in ticks, in JSON's words."""

    def words(match: re.Match[str]) -> str:
        kinds = [k for k in match[1].split(" | ") if k != "null"] or ["null"]
        return " or ".join(_KINDS.get(k, k) for k in kinds)

    return _TICKED.sub(words, what[:1].lower() + what[1:])


def _names(kind: type[Struct]) -> set[str]:
    """All field names of a request, those of the objects inside it included."""
    found: set[str] = set()
    seen: set[type] = set()
    todo: list[Type] = [type_info(kind)]
    while todo:
        node = todo.pop()
        if isinstance(node, StructType) and node.cls not in seen:
            seen.add(node.cls)
            found |= {f.encode_name for f in node.fields}
            todo += [f.type for f in node.fields]
        elif isinstance(node, ListType):
            todo.append(node.item_type)
        elif isinstance(node, UnionType):
            todo += node.types
    return found


def _prune(value: Any, node: Type) -> Any:
    """`value` without the fields that `node` does not know, at every depth where it knows any."""
    if isinstance(node, UnionType):
        return _prune_union(value, node)
    if isinstance(node, StructType) and isinstance(value, dict):
        known = {f.encode_name: f.type for f in node.fields}
        kept = {k: _prune(v, known[k]) for k, v in value.items() if k in known}
        if node.tag_field is not None and node.tag_field in value:
            kept[node.tag_field] = value[node.tag_field]
        return kept
    if isinstance(node, ListType) and isinstance(value, list):
        return [_prune(item, node.item_type) for item in value]
    return Raw(msgspec.json.encode(value)) if isinstance(node, RawType) else value


def _prune_union(value: Any, node: UnionType) -> Any:
    for option in node.types:
        if isinstance(option, StructType) and isinstance(value, dict):
            if option.tag_field is None or value.get(option.tag_field) == option.tag:
                return _prune(value, option)
        elif isinstance(option, ListType) and isinstance(value, list):
            return _prune(value, option)
    return value
