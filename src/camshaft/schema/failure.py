"""The error object of OpenAI's API, in a body and in a stream."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from camshaft.types import ErrorInfo


class ErrorDetail(Struct, frozen=True):
    """All four are always there; `param` names the field at fault."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct, frozen=True):
    error: ErrorDetail


_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def error_body(info: ErrorInfo) -> bytes:
    """`info` as JSON."""
    kind = _TYPES.get(info.status, "invalid_request_error" if info.status < 500 else "server_error")
    return msgspec.json.encode(ErrorBody(ErrorDetail(info.message, kind, info.param, info.code)))
