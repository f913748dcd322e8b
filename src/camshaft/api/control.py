"""The admin API: an application of its own on a port of its own, for operators and dashboards, never for clients."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from camshaft.api import control_events
from camshaft.api.admin import metrics as metrics_page
from camshaft.api.app import App
from camshaft.api.auth import ADMIN_TOKEN, Keys
from camshaft.api.call import Call
from camshaft.api.directory import Caller
from camshaft.api.edge import Edge
from camshaft.api.failure import Guard
from camshaft.api.query import query
from camshaft.api.served import ServedModel
from camshaft.config import ServerConfig
from camshaft.errors import Forbidden, UnknownModel
from camshaft.gateway.admin import Admin
from camshaft.gateway.control import Done
from camshaft.observe.metrics import Metrics
from camshaft.schema.control import Reload, Replica, Rollback, Scale, Weights
from camshaft.schema.decode import decode

S = TypeVar("S", bound=Struct)

ADMIN, READ = "admin", "read"  # who a token makes somebody
MAX_BODY_BYTES = 65_536
MAX_INSIDE = 64
_ACTOR = re.compile(rb"[A-Za-z0-9._@:-]{1,64}\Z")


class Operators:
    """Implements Directory for who has a token, and serves no model."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        """`tokens`: role -> token."""
        self._keys = Keys(((token, role) for role, token in tokens.items()), ADMIN_TOKEN)

    @property
    def keys(self) -> Keys:
        return self._keys

    def models(self, tenant: str) -> Sequence[ServedModel]:
        return ()

    def model(self, name: str | None, caller: Caller, passed: Collection[str] = ()) -> ServedModel:
        raise UnknownModel("the admin API serves no model")

    def can_fall_back(self, tenant: str, passed: Collection[str]) -> bool:
        return False

    def headers(self, tenant: str) -> Mapping[bytes, bytes]:
        return {}


def create_control_app(admin: Admin, tokens: Mapping[str, str], config: ServerConfig, metrics: Metrics | None = None) -> App:
    """The admin API over `admin`. `tokens`: those of the roles ADMIN and READ. `config` gives its address."""
    bounded = ServerConfig(
        host=config.host, port=config.port, drain_s=config.drain_s, max_body_bytes=MAX_BODY_BYTES, max_concurrent_requests=MAX_INSIDE
    )
    edge = Edge(Operators(tokens), bounded, metrics or Metrics())
    app = App(edge)

    def look(path: str, handler: Callable[[Admin, Edge, Call], Awaitable[None]], *, quiet: bool = True) -> None:
        app.serve("GET", path, Guard(edge, partial(handler, admin), counted=True, quiet=quiet))

    def change(path: str, kind: type[S], work: Callable[[str, S], Awaitable[Done]]) -> None:
        app.serve("POST", path, Guard(edge, partial(_change, kind, work), counted=True))

    look("/v1/fleet", _fleet)
    look("/v1/files", _files)
    look("/v1/events", control_events.events, quiet=False)
    change("/v1/scale", Scale, lambda by, asked: admin.scale(by, asked.version, asked.replicas))
    change("/v1/drain", Replica, lambda by, asked: admin.drain(by, asked.replica))
    change("/v1/restart", Replica, lambda by, asked: admin.restart(by, asked.replica))
    change("/v1/weights", Weights, lambda by, asked: admin.weights(by, asked.model, asked.weights))
    change("/v1/reload", Reload, lambda by, asked: admin.reload(by, force=asked.force))
    change("/v1/rollback", Rollback, lambda by, asked: admin.rollback(by, asked.revision))
    app.serve("GET", "/metrics", Guard(edge, metrics_page, quiet=True))
    app.serve("GET", "/health", Guard(edge, _health, keyed=False, quiet=True))
    return app


async def _health(edge: Edge, call: Call) -> None:
    await call.reply(200, b'{"status":"ok"}')


async def _fleet(admin: Admin, edge: Edge, call: Call) -> None:
    query(call)
    await call.reply(200, msgspec.json.encode(await admin.control.status()))


async def _files(admin: Admin, edge: Edge, call: Call) -> None:
    query(call)
    await call.reply(200, msgspec.json.encode({"files": await admin.control.revisions()}))


async def _change(kind: type[S], work: Callable[[str, S], Awaitable[Done]], edge: Edge, call: Call) -> None:
    """The body is read and checked before anything happens. What began goes on, whether or not who asked waits for it."""
    if call.tenant != ADMIN:
        raise Forbidden("this token may look and not change; use the one in admin.token")
    query(call)
    asked = decode(await call.body(edge.config.max_body_bytes), kind)
    await call.reply(200, msgspec.json.encode(await work(who(call), asked)))


def who(call: Call) -> str:
    """Who asks, for events: what they call themselves, and from where."""
    client = call.scope.get("client") or ("?",)
    actor = call.headers.get(b"x-camshaft-actor", b"")
    return f"{actor.decode()} from {client[0]}" if _ACTOR.match(actor) else str(client[0])
