"""CORS: pages of which origins may call this API from a browser. Of none, unless they are listed."""

from __future__ import annotations

import re
from collections.abc import Collection

from camshaft.api.asgi import Message, Scope, Send

_EXPOSED = (
    b"x-request-id, retry-after, x-camshaft-version, x-camshaft-replica, x-camshaft-tries, x-camshaft-fallback, "
    b"x-ratelimit-limit-requests, x-ratelimit-remaining-requests, x-ratelimit-reset-requests, "
    b"x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens"
)
_PLAIN = re.compile(rb"[A-Za-z0-9, _-]{1,2048}\Z")
PREFLIGHT_S = b"600"  # that a browser may remember the answer


def allowed(scope: Scope, origins: Collection[bytes]) -> bytes | None:
    """The call's origin, where it is one of `origins`."""
    origin: bytes | None = next((value for name, value in scope["headers"] if name == b"origin"), None)
    return origin if origin in origins else None


def allowing(send: Send, origin: bytes) -> Send:
    """`send`, with what lets the page read the answer."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            more = ((b"access-control-allow-origin", origin), (b"vary", b"origin"), (b"access-control-expose-headers", _EXPOSED))
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


async def preflight(scope: Scope, send: Send) -> None:
    """The answer to a browser that asks whether it may ask. `send` is `allowing`'s."""
    wanted = next((value for name, value in scope["headers"] if name == b"access-control-request-headers"), b"")
    head = [(b"access-control-allow-methods", b"GET, POST"), (b"access-control-max-age", PREFLIGHT_S)]
    if _PLAIN.match(wanted):
        # Any header may be sent: which ones count is said where they are read.
        head.append((b"access-control-allow-headers", wanted))
    await send({"type": "http.response.start", "status": 204, "headers": head})
    await send({"type": "http.response.body", "body": b""})
