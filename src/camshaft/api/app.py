"""The application: which path goes to which handler, and under which guard."""

from __future__ import annotations

from camshaft.api import admin, cors, models, openapi
from camshaft.api.asgi import Receive, Scope, Send
from camshaft.api.chat import chat_completions
from camshaft.api.completions import completions
from camshaft.api.directory import Directory
from camshaft.api.edge import Edge
from camshaft.api.failure import Guard, Handler, refuse
from camshaft.api.tokenize import detokenize, tokenize
from camshaft.config import ServerConfig
from camshaft.observe.metrics import Metrics
from camshaft.types import ErrorInfo


class App:
    """An ASGI application. A call meets one dictionary and its guard before it meets its handler."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge
        self.origins: frozenset[bytes] = frozenset()  # whose pages may call it
        self._exact: dict[str, dict[str, Guard]] = {}  # path -> method -> guard
        self._below: dict[str, dict[str, Guard]] = {}  # the same for paths that go on after this

    @property
    def paths(self) -> list[str]:
        """What is served; `{model}` stands for a name that may hold slashes."""
        return [*self._exact, *(f"{path}{{model}}" for path in self._below)]

    def serve(self, method: str, path: str, guard: Guard) -> None:
        """Serve `path`, or everything below it where it ends in a slash."""
        (self._below if path.endswith("/") else self._exact)[path] = {method: guard} | ({"HEAD": guard} if method == "GET" else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._live(receive, send)
            return
        if self.origins and (origin := cors.allowed(scope, self.origins)) is not None:
            send = cors.allowing(send, origin)
            if scope["method"] == "OPTIONS":
                await cors.preflight(scope, send)
                return
        guards = self._guards(scope["path"])
        guard = guards.get(scope["method"])
        if guard is not None:
            await guard(scope, receive, send)
            return
        # A slash too many is a path that is not there; a redirect would lose the body of a POST in most clients.
        path, method = scope["path"][:100], scope["method"][:20]
        if guards:
            info = ErrorInfo("method_not_allowed", f"{path} does not take {method}", 405)
            await refuse(scope, receive, send, info, ", ".join(guards))
        else:
            await refuse(scope, receive, send, ErrorInfo("not_found", f"there is no {path} here; see /docs", 404))

    def _guards(self, path: str) -> dict[str, Guard]:
        found = self._exact.get(path)
        if found is not None:
            return found
        return next((guards for prefix, guards in self._below.items() if path.startswith(prefix) and path != prefix), {})

    async def _live(self, receive: Receive, send: Send) -> None:
        """ASGI's lifespan: what the edge owns ends with the server."""
        while (await receive())["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        self.edge.close()
        await send({"type": "lifespan.shutdown.complete"})


def create_app(directory: Directory, config: ServerConfig, metrics: Metrics) -> App:
    """The server over these models. `app.edge` is what they share. Closing an upstream is its owner's business."""
    edge = Edge(directory, config, metrics)
    app = App(edge)

    def work(path: str, handler: Handler) -> None:
        app.serve("POST", path, Guard(edge, handler, counted=True))

    def show(path: str, handler: Handler) -> None:
        app.serve("GET", path, Guard(edge, handler))

    def polled(path: str, handler: Handler, *, keyed: bool = False) -> None:
        app.serve("GET", path, Guard(edge, handler, keyed=keyed, quiet=True))

    work("/v1/chat/completions", chat_completions)
    work("/v1/completions", completions)
    work("/tokenize", tokenize)
    work("/detokenize", detokenize)
    show("/v1/models", models.list_models)
    show(models.BELOW, models.one_model)
    show("/openapi.json", openapi.openapi_json)
    show("/docs", openapi.docs_page)
    polled("/health", admin.health)
    polled("/ready", admin.ready)
    polled("/version", admin.show_version)
    polled("/metrics", admin.metrics, keyed=True)
    return app
