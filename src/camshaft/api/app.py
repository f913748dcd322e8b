"""The application: which path goes to which handler, and under which guard."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from camshaft.api import admin, models, openapi
from camshaft.api.chat import chat_completions
from camshaft.api.completions import completions
from camshaft.api.edge import Edge
from camshaft.api.failure import Guard, Handler, http_error
from camshaft.api.served import ServedModel
from camshaft.api.tokenize import detokenize, tokenize
from camshaft.config import ServerConfig
from camshaft.observe.metrics import Metrics


def create_app(models_served: Sequence[ServedModel], config: ServerConfig, metrics: Metrics) -> Starlette:
    """The server over these models. `app.state.edge` is what they share. Closing an upstream is its owner's business."""
    edge = Edge(models_served, config, metrics)

    def work(path: str, handler: Handler) -> Route:
        return Route(path, Guard(edge, handler, counted=True), methods=["POST"])

    def show(path: str, handler: Handler) -> Route:
        return Route(path, Guard(edge, handler), methods=["GET"])

    def polled(path: str, handler: Handler, *, keyed: bool = False) -> Route:
        return Route(path, Guard(edge, handler, keyed=keyed, quiet=True), methods=["GET"])

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        edge.close()

    app = Starlette(
        routes=[
            work("/v1/chat/completions", chat_completions),
            work("/v1/completions", completions),
            work("/tokenize", tokenize),
            work("/detokenize", detokenize),
            show("/v1/models", models.list_models),
            show("/v1/models/{model:path}", models.one_model),
            show("/openapi.json", openapi.openapi_json),
            show("/docs", openapi.docs_page),
            polled("/health", admin.health),
            polled("/ready", admin.ready),
            polled("/version", admin.show_version),
            polled("/metrics", admin.metrics, keyed=True),
        ],
        exception_handlers={HTTPException: http_error},
        lifespan=lifespan,
    )
    # A slash too many is a path that is not there; a redirect would lose the body of a POST in most clients.
    app.router.redirect_slashes = False
    app.state.edge = edge
    return app
