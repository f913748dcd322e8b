"""What operators and load balancers ask: is it alive, is it ready, how is it doing, what is it."""

from __future__ import annotations

import asyncio

import msgspec

from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.errors import Draining, Unavailable
from camshaft.observe.merge import merged

HEALTH_WAIT_S = 2.0


async def health(edge: Edge, call: Call) -> None:
    """Alive: this process answers. Asks nobody else, so that nothing can make it slow."""
    await call.reply(200, b'{"status":"ok"}')


async def ready(edge: Edge, call: Call) -> None:
    """Loaded, not draining. Raises Unavailable, so that a load balancer sees 503."""
    if edge.draining:
        raise Draining("this server is shutting down", retry_after_s=1.0)
    shown: dict[str, dict[str, object]] = {}
    for model in edge.directory.models(call.tenant):
        try:
            async with asyncio.timeout(HEALTH_WAIT_S):
                state = await model.upstream.health()
        except TimeoutError:
            raise Unavailable(f"{model.name} did not say how it is within {HEALTH_WAIT_S:g} s", retry_after_s=1.0) from None
        if not state.ready:
            raise Unavailable(f"{model.name} is not ready{': ' + state.detail if state.detail else ''}", retry_after_s=1.0)
        shown[model.name] = {"running": state.running, "waiting": state.waiting}
    await call.reply(200, msgspec.json.encode({"status": "ready", "models": shown}))


async def metrics(edge: Edge, call: Call) -> None:
    own = edge.metrics.render()
    page = own if edge.more_metrics is None else merged([({}, own), *await edge.more_metrics()])
    await call.reply(200, page, b"text/plain; version=0.0.4; charset=utf-8")


async def show_version(edge: Edge, call: Call) -> None:
    await call.reply(200, msgspec.json.encode({"version": own_version()}))


def own_version() -> str:
    """The installed package's version; a source tree that was never installed has none."""
    from importlib.metadata import PackageNotFoundError, version  # brings a parser of e-mail; hardly anybody asks

    try:
        return version("camshaft")
    except PackageNotFoundError:
        return "0+unknown"
