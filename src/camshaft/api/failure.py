"""Every way for a call to end other than well, in OpenAI's shape; and the line that says how it ended."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from camshaft.api.asgi import Receive, Scope, Send
from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.api.sse import DONE, event
from camshaft.errors import CamshaftError, Cancelled, Draining, EngineFault
from camshaft.observe.log import Pairs
from camshaft.schema.failure import error_body
from camshaft.types import ErrorInfo

log = logging.getLogger(__name__)
access = logging.getLogger("camshaft.access")

Handler = Callable[[Edge, Call], Awaitable[None]]
FAREWELL_S = 2.0  # for an error to be taken by a client that may not be reading


class Guard:
    """An ASGI endpoint around a handler: keys, the bound on calls inside, errors into answers, one log line at the end.

    keyed: asks for an API key where the server has any. counted: is work, which a drain waits for. quiet: polled, so logged at debug level.
    """

    def __init__(self, edge: Edge, handler: Handler, *, keyed: bool = True, counted: bool = False, quiet: bool = False) -> None:
        self._edge = edge
        self._handler = handler
        self._keyed = keyed
        self._counted = counted
        self._quiet = quiet  # a probe that finds nothing ready is no failure either

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = Call(scope, receive, send)
        try:
            await self._handle(call)
        except CamshaftError as error:
            await self._fail(call, error.info())
        except asyncio.CancelledError:
            # Nobody but a server that ends while calls are inside cancels one, and nobody waits to see it cancelled.
            await self._fail(call, Draining("this server shut down before the answer was complete; ask again", retry_after_s=1.0).info())
        except Exception:
            log.exception("a handler failed: id=%s path=%s", call.id, scope["path"])
            await self._fail(call, EngineFault("the server failed on this request; its log says why").info())
        finally:
            self._note_end(call)

    async def _handle(self, call: Call) -> None:
        if self._keyed:
            call.tenant = self._edge.directory.keys.tenant(call.headers.get(b"authorization"))
        if self._counted:
            with self._edge.admitted(call):
                await self._handler(self._edge, call)
        else:
            await self._handler(self._edge, call)

    async def _fail(self, call: Call, info: ErrorInfo) -> None:
        call.notes["error"] = info.code
        if info.status >= 500:
            level = logging.DEBUG if self._quiet else logging.WARNING
            log.log(level, "request failed: id=%s code=%s: %s", call.id, info.code, info.message)
        if info.status == Cancelled.status:
            # Nobody is there to read an answer.
            call.status = call.status or Cancelled.status
            return
        try:
            async with asyncio.timeout(FAREWELL_S):
                # What is left of its limits tells a client that is refused for them when to come again.
                limits = self._edge.directory.headers(call.tenant) if info.status == 429 else {}
                await _answer(call, info, limits)
        except (Cancelled, TimeoutError):
            call.notes["unsent"] = True

    def _note_end(self, call: Call) -> None:
        route = call.scope["path"]
        self._edge.metrics.http.child(_template(call.scope), str(call.status)).add()
        level = logging.DEBUG if self._quiet else logging.INFO
        if access.isEnabledFor(level):
            shown: dict[str, object] = {"id": call.id, "method": call.scope["method"], "path": route, "status": call.status}
            shown["ms"] = round((time.perf_counter() - call.began_at) * 1e3, 1)
            shown["tenant"] = call.tenant or None
            access.log(level, "%s", Pairs(shown | call.notes))


def _template(scope: Scope) -> str:
    """The route rather than the path: a path is the client's, and would make a series each."""
    return "/v1/models/{model}" if scope["path"].startswith("/v1/models/") else str(scope["path"])


async def _answer(call: Call, info: ErrorInfo, limits: Mapping[bytes, bytes]) -> None:
    body = error_body(info)
    if call.status == 0:
        headers = dict(limits)
        if info.retry_after_s is not None:
            headers[b"retry-after"] = b"%d" % max(1, math.ceil(info.retry_after_s))
        if info.status == 401:
            headers[b"www-authenticate"] = b"Bearer"
        await call.reply(info.status, body, headers=headers)
    elif call.streaming:
        await call.close_stream(event(body) + DONE)


async def refuse(scope: Scope, receive: Receive, send: Send, info: ErrorInfo, allow: str = "") -> None:
    """Answer a call that reaches no handler. `allow`: the methods that would."""
    call = Call(scope, receive, send)
    with suppress(Cancelled):
        await call.reply(info.status, error_body(info), headers={b"allow": allow.encode()} if allow else {})
