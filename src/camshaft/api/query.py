"""The query of a URL, strictly."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import parse_qsl

from camshaft.api.call import Call
from camshaft.config import suggest
from camshaft.errors import BadRequest

MAX_CHARS = 4_096
MAX_PARAMETERS = 16


def query(call: Call, known: Collection[str] = ()) -> dict[str, str]:
    """Its parameters. Raises BadRequest for those that are not known, for one given twice, and for what is no query."""
    raw: bytes = call.scope.get("query_string", b"")
    if len(raw) > MAX_CHARS:
        raise BadRequest(f"the query has {len(raw)} bytes; at most {MAX_CHARS} are read")
    try:
        pairs = parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, strict_parsing=bool(raw), max_num_fields=MAX_PARAMETERS, errors="strict"
        )
    except ValueError:
        raise BadRequest("the query of the URL is not of the form name=value&name=value") from None
    found = dict(pairs)
    for name in found:
        if name not in known:
            raise BadRequest(f"{name[:100]!r} is not a known parameter{suggest(name, known)}", param=name[:100])
    if len(found) < len(pairs):
        raise BadRequest("a parameter of the URL is given twice")
    return found


def number(parameters: dict[str, str], name: str, default: float, hi: float) -> float:
    """A number from 0 to `hi`. Raises BadRequest."""
    try:
        value = float(parameters.get(name, default))
    except ValueError:
        value = -1.0
    # The comparison is written so that NaN fails it.
    if not 0 <= value <= hi:
        raise BadRequest(f"{name} takes a number from 0 to {hi:g}, not {parameters[name][:50]!r}", param=name)
    return value
