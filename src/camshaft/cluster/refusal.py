"""Another server's errors as ours.

For breakers: ReplicaLost, and Unavailable without a Retry-After, are faults of that server; Overloaded, and Unavailable with one, are
back-pressure; the rest is the client's doing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from camshaft.errors import BadRequest, BodyTooLarge, CamshaftError, Overloaded, PromptTooLong, ReplicaLost, Unavailable, UpstreamRefused
from camshaft.schema.foreign import ForeignError

MAX_SAID_CHARS = 500
OURS = (401, 402, 403, 407)  # statuses that speak of our key there
_TOO_LONG = ("maximum context length", "exceed context window")  # vLLM and OpenAI, llama-cpp-python; llama.cpp's own server has a type


def refusal(status: int, headers: Mapping[str, str], body: bytes, key: str = "") -> CamshaftError:
    """The error of an answer that is not 200. What it says comes through for a client's own mistakes only, bounded and without `key`."""
    said = _error(body)
    # About our key, our account or our idea of the server: nothing that the client could mend, and nothing that it is to read.
    if status in OURS:
        return UpstreamRefused(f"the server behind this model refuses this gateway's key ({status}), which its operators have to mend")
    if status in (404, 405):
        return Unavailable(f"the server behind this model does not know the call ({status}); its address or the model's name is wrong")
    if status in (429, 529):
        return Overloaded("the server behind this model takes no more for now", retry_after_s=_retry_after_s(headers) or 1.0)
    if status == 503:
        return Unavailable("the server behind this model is not ready", retry_after_s=_retry_after_s(headers))
    if status == 413:
        return BodyTooLarge("the server behind this model does not take a request of this size")
    if 400 <= status < 500 and status != 408:
        return _blamed(said, key)
    if 300 <= status < 400:
        return Unavailable("the server behind this model redirects, which is not followed; give its final address")
    return ReplicaLost(f"the server behind this model failed ({status})")


def in_stream(payload: bytes, key: str = "") -> CamshaftError:
    """The error that a server sends when its answer has begun."""
    said = _error(payload)
    code = said.code
    status = int(code) if isinstance(code, int) or (isinstance(code, str) and code.isdigit()) else 500
    if status == 500 and "invalid_request" in (said.type or ""):
        status = 400
    return refusal(status, {}, payload, key)


def _blamed(said: ForeignError, key: str) -> BadRequest:
    text = said.message or "the server behind this model refused the request"
    if key:
        text = text.replace(key, "[key]")
    text = " ".join(text.split())
    text = text if len(text) <= MAX_SAID_CHARS else text[:MAX_SAID_CHARS] + "..."
    param = None if said.param is None else said.param[:100]
    long = said.code == "context_length_exceeded" or said.type == "exceed_context_size_error" or any(words in text for words in _TOO_LONG)
    return PromptTooLong(text, param=param) if long else BadRequest(text, param=param)


def _error(body: bytes) -> ForeignError:
    """OpenAI's shape {"error": {...}}, the object alone, vLLM's older one, FastAPI's {"detail": ...}, or any text."""
    try:
        given = msgspec.json.decode(body)
        inner = given.get("error", given) if isinstance(given, dict) else given
        if isinstance(inner, dict) and "detail" in inner and "message" not in inner:
            return ForeignError(
                message=inner["detail"] if isinstance(inner["detail"], str) else msgspec.json.encode(inner["detail"]).decode()
            )
        return msgspec.convert(inner, ForeignError) if isinstance(inner, dict) else ForeignError(message=str(inner))
    except (ValueError, RecursionError):
        text = body.decode("utf-8", "replace").strip()
        return ForeignError() if text.startswith("<") else ForeignError(message=text or None)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds; None where the server gives none, or a date."""
    given = headers.get("retry-after", "").strip()[:20]
    return min(float(given), 3600.0) if given.isascii() and given.replace(".", "", 1).isdigit() else None
