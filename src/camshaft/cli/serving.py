"""Service: an engine and the edge before it. Apart from `serve`, because all that it imports is imported while the model loads."""

from __future__ import annotations

import time
from collections.abc import Callable

from camshaft.api.app import create_app
from camshaft.api.auth import read_keys
from camshaft.api.directory import FixedModels
from camshaft.api.served import ServedModel
from camshaft.api.server import serve
from camshaft.cli import terminal
from camshaft.config import EngineConfig, ServerConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.model import Model
from camshaft.observe.metrics import Metrics
from camshaft.tokenizer.dialogue import Dialogue


class Service:
    """One model under its public name. Owns the engine, which ends with `run`."""

    def __init__(self, name: str, engine: AsyncEngine, config: EngineConfig, metrics: Metrics) -> None:
        self._name = name
        self._engine = engine
        self._config = config
        self._metrics = metrics

    async def run(self, config: ServerConfig, listening: Callable[[str], None]) -> None:
        """Serves until it is told to stop. `listening` hears the address."""
        try:
            _show(self._name, self._engine.model, self._config)
            await serve(create_app(FixedModels([self._served()], read_keys(config.api_keys)), config, self._metrics), config, listening)
        finally:
            await self._engine.close()

    def _served(self) -> ServedModel:
        model = self._engine.model
        return ServedModel(
            name=self._name,
            upstream=self._engine,
            tokenizer=model.tokenizer,
            max_model_len=model.capacity.max_model_len,
            system_fingerprint=model.numerics_id,
            defaults=model.defaults,
            chat=Dialogue(model.tokenizer, model.template) if model.can_chat else None,
            created=int(time.time()),
            longest_s=self._config.default_deadline_s,
        )


def _show(name: str, model: Model, config: EngineConfig) -> None:
    for warning in model.warnings:
        terminal.warn(warning)
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
