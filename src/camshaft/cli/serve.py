"""`camshaft serve`: one model behind an OpenAI-compatible address."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
import time
from typing import Any

import uvloop

from camshaft.api.app import create_app
from camshaft.api.auth import read_keys
from camshaft.api.served import ServedModel
from camshaft.api.server import bind, serve
from camshaft.cli import terminal
from camshaft.cli.command import Command, model_argument
from camshaft.config import EngineConfig, ServerConfig, add_flags, flag, resolve
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.model import Model
from camshaft.formats import catalogue, source
from camshaft.observe import log
from camshaft.observe.metrics import Metrics
from camshaft.tokenizer.dialogue import Dialogue


def _arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    add_flags(parser, ServerConfig)
    add_flags(parser, EngineConfig)


def _handler(args: argparse.Namespace) -> int:
    config, from_where = resolve(ServerConfig, cli=vars(args), env=os.environ)
    engine_config, engine_from_where = resolve(EngineConfig, cli=vars(args), env=os.environ)
    log.configure(config.log_level, sys.stderr)
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
    metrics = Metrics()
    public_name = config.served_model_name or (name if catalogue.find(name) else "") or (path.stem if name else source.DEFAULT)
    engine = AsyncEngine.from_model(str(path), engine_config, metrics.engine(public_name))
    try:
        model = engine.model
        for warning in model.warnings:
            terminal.warn(warning)
        _show_model(public_name, model, engine_config)
        app = create_app([_served(public_name, engine, engine_config)], config, metrics)

        def listening(address: str) -> None:
            said = f"[bold green]ready[/] after {time.monotonic() - began:.1f} s: [bold]{address}/v1[/]   API page: {address}/docs"
            terminal.err.print(said, soft_wrap=True)

        await serve(app, config, listening)
    finally:
        await engine.close()


def _served(name: str, engine: AsyncEngine, config: EngineConfig) -> ServedModel:
    model = engine.model
    return ServedModel(
        name=name,
        upstream=engine,
        tokenizer=model.tokenizer,
        max_model_len=model.capacity.max_model_len,
        system_fingerprint=model.numerics_id,
        defaults=model.defaults,
        chat=Dialogue(model.tokenizer, model.template) if model.can_chat else None,
        created=int(time.time()),
        longest_s=config.default_deadline_s,
    )


def _show_settings(section: Any, from_where: dict[str, str]) -> None:
    for field, where in from_where.items():
        terminal.note(f"{flag(field)} {getattr(section, field)} ({where})")


def _show_model(name: str, model: Model, config: EngineConfig) -> None:
    capacity = model.capacity
    per_request = len(capacity.groups) * -(-capacity.max_model_len // capacity.block_size)
    n_usable = capacity.n_blocks - 1
    n_tokens = n_usable // len(capacity.groups) * capacity.block_size
    terminal.note(
        f"{name}: {model.packed_bytes / 1e6:.0f} MB of packed weights, numerics {model.numerics_id}; "
        f"context {capacity.max_model_len:,}, at most {config.max_num_seqs} at once, {config.max_num_batched_tokens} tokens a step"
    )
    terminal.note(
        f"KV pool: {model.kv_bytes / 1e6:,.0f} MB of {config.kv_dtype} = {n_tokens:,} tokens = "
        f"{n_usable / per_request:.1f} requests of {capacity.max_model_len:,} "
        f"({n_usable:,} blocks of {capacity.block_size} tokens); memory is taken as it is used"
    )
    if not model.can_chat:
        terminal.note("no chat template: /v1/completions works, /v1/chat/completions says why it does not")


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
