"""Load: a model's name becomes everything that an engine is assembled from."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from camshaft.config import EngineConfig
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.engine.model import Model
from camshaft.engine.words import words_of
from camshaft.formats.model import ModelFile
from camshaft.formats.open import open_model
from camshaft.formats.source import resolve
from camshaft.observe.metrics import EngineMetrics
from camshaft.runners.cpu import CpuRunner


class LoadedModel(NamedTuple):
    parts: Parts
    speech: Speech
    model: Model


def load(name: str, config: EngineConfig, metrics: EngineMetrics | None = None) -> LoadedModel:
    """Raises DownloadError, ModelError or ConfigError. "" is the default model."""
    file = open_model(resolve(name))
    with ThreadPoolExecutor(1) as beside:
        # The runner spends its time in native threads, the words in Python.
        running = beside.submit(CpuRunner, file, config)
        words = words_of(file)
        runner = running.result()
    file.rest()
    model = Model(
        name=file.spec.name,
        path=file.path,
        tokenizer=words.tokenizer,
        template=words.template,
        defaults=words.defaults,
        capacity=runner.capacity(),
        numerics_id=runner.numerics_id,
        tensor_bytes=file.tensor_bytes,
        linear_weights=_linear_weights(file),
        packed_bytes=runner.loaded.packed_bytes,
        kv_bytes=runner.loaded.kv_bytes,
        warnings=file.warnings,
    )

    return LoadedModel(Parts(runner, config, metrics=metrics), words.speech, model)


def _linear_weights(file: ModelFile) -> int:
    shapes = [file.info(name).shape for name in file.names() if name not in ("embed", "head")]
    return sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)
