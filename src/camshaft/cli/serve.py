"""`camshaft serve`: one model behind an OpenAI-compatible address."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import uvloop

from camshaft.api.auth import read_keys
from camshaft.api.listener import bind
from camshaft.cli import terminal
from camshaft.cli.command import Command, model_argument
from camshaft.cli.heap import uncollected
from camshaft.config import EngineConfig, ServerConfig, add_flags, flag, resolve
from camshaft.formats import catalogue, source
from camshaft.observe import log
from camshaft.observe.metrics import Metrics

if TYPE_CHECKING:
    from camshaft.engine.async_engine import AsyncEngine


def _arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    add_flags(parser, ServerConfig)
    add_flags(parser, EngineConfig)


def _handler(args: argparse.Namespace) -> int:
    config, from_where = resolve(ServerConfig, cli=vars(args), env=os.environ)
    engine_config, engine_from_where = resolve(EngineConfig, cli=vars(args), env=os.environ)
    log.configure(config.log_level, sys.stderr, config.log_format)
    _show_settings(config, from_where)
    _show_settings(engine_config, engine_from_where)
    if not _is_loopback(config.host) and not config.api_keys:
        terminal.warn(f"{config.host} can be reached from other machines and no key is asked for; pass --api-keys FILE")
    # Loading may take a while; what is wrong with these is better said before.
    read_keys(config.api_keys)
    bind(config.host, config.port).close()
    uvloop.run(_serve(args.model, config, engine_config))
    return 0


async def _serve(name: str, config: ServerConfig, engine_config: EngineConfig) -> None:
    began = time.monotonic()
    path = terminal.fetch(name)
    public_name = config.served_model_name or (name if catalogue.find(name) else "") or (path.stem if name else source.DEFAULT)
    metrics = Metrics()
    with uncollected():
        loading = asyncio.ensure_future(asyncio.to_thread(_load, str(path), engine_config, metrics, public_name))
        # The edge is imported while the model loads: packing and mapping weights do not hold Python's lock.
        from camshaft.cli import serving

        await asyncio.wait((loading,))
    service = serving.Service(public_name, loading.result(), engine_config, metrics)
    await service.run(config, lambda address: terminal.ready(time.monotonic() - began, f"{address}/v1", f"API page: {address}/docs"))


def _load(path: str, config: EngineConfig, metrics: Metrics, public_name: str) -> AsyncEngine:
    from camshaft.engine.async_engine import AsyncEngine

    return AsyncEngine.from_model(path, config, metrics.engine(public_name))


def _show_settings(section: Any, from_where: dict[str, str]) -> None:
    for field, where in from_where.items():
        terminal.note(f"{flag(field)} {getattr(section, field)} ({where})")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


COMMAND = Command(
    name="serve",
    help="serve a model behind an OpenAI-compatible address",
    examples=(
        "camshaft serve",
        "camshaft serve smollm2-135m --port 8000 --max-model-len 2048 --kv-memory 1G",
        "camshaft serve ./model.gguf --host 0.0.0.0 --api-keys keys.txt",
    ),
    arguments=_arguments,
    handler=_handler,
)
