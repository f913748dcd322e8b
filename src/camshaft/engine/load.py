"""Load: a model's name becomes everything that an engine is assembled from."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from camshaft.config import EngineConfig
from camshaft.engine.codec import Speech
from camshaft.engine.loop import Parts
from camshaft.engine.model import Model
from camshaft.formats.model import GenerationDefaults, ModelFile
from camshaft.formats.open import open_model
from camshaft.formats.source import resolve
from camshaft.observe.metrics import EngineMetrics
from camshaft.runners.cpu import CpuRunner
from camshaft.tokenizer.chat import ChatTemplate
from camshaft.tokenizer.tokenizer import Tokenizer
from camshaft.types import ChatPrompt, SamplingParams


class LoadedModel(NamedTuple):
    parts: Parts
    speech: Speech
    model: Model


def load(name: str, config: EngineConfig, metrics: EngineMetrics | None = None) -> LoadedModel:
    """Raises DownloadError, ModelError or ConfigError. "" is the default model."""
    file = open_model(resolve(name))
    with ThreadPoolExecutor(1) as beside:
        # The runner spends its time in native threads, the tokenizer in Python.
        running = beside.submit(CpuRunner, file, config)
        tokenizer = Tokenizer.from_model(file)
        # The makers' settings may name more ends than the vocabulary does. Nobody else has seen this tokenizer yet.
        tokenizer.eos_ids = tokenizer.eos_ids | frozenset(file.generation.eos_ids)
        template = ChatTemplate(file.chat_template, special_tokens=_special_tokens(tokenizer))
        runner = running.result()
    file.rest()
    model = Model(
        name=file.spec.name,
        path=file.path,
        tokenizer=tokenizer,
        template=template,
        defaults=_defaults(file.generation),
        capacity=runner.capacity(),
        numerics_id=runner.numerics_id,
        tensor_bytes=file.tensor_bytes,
        linear_weights=_linear_weights(file),
        packed_bytes=runner.loaded.packed_bytes,
        kv_bytes=runner.loaded.kv_bytes,
        warnings=file.warnings,
    )

    def render(prompt: ChatPrompt, salt: str) -> Sequence[int]:
        return tokenizer.encode_parts(template.render(prompt), salt=salt)

    return LoadedModel(Parts(runner, config, metrics=metrics), Speech(tokenizer, render if template.can_chat else None), model)


def _special_tokens(tokenizer: Tokenizer) -> dict[str, str]:
    named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {name: tokenizer.spelling(id) for name, id in named.items() if id is not None}


def _defaults(said: GenerationDefaults) -> SamplingParams:
    """Where the makers say nothing, the API's defaults hold."""
    plain = SamplingParams()
    return SamplingParams(
        temperature=plain.temperature if said.temperature is None else said.temperature,
        top_p=plain.top_p if said.top_p is None else said.top_p,
        top_k=plain.top_k if said.top_k is None else said.top_k,
        min_p=plain.min_p if said.min_p is None else said.min_p,
        repetition_penalty=plain.repetition_penalty if said.repetition_penalty is None else said.repetition_penalty,
    )


def _linear_weights(file: ModelFile) -> int:
    shapes = [file.info(name).shape for name in file.names() if name not in ("embed", "head")]
    return sum(shape[0] * shape[1] for shape in shapes if len(shape) == 2)
