"""A text completion call, checked and made into requests."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from camshaft.api.parts import Origin, new_id, requests_for
from camshaft.api.sampling import check_id, check_lengths, check_top_logprobs, sampling_params
from camshaft.api.served import ServedModel
from camshaft.config import ServerConfig
from camshaft.errors import BadRequest
from camshaft.schema.completions import CompletionRequest
from camshaft.types import Prompt, Request, SamplingParams, TextPrompt, TokenPrompt

# Prompts times choices of one call, as a multiple of the largest n.
CHOICES_PER_N = 16


@dataclass(frozen=True)
class CompletionPlan:
    """What the answer needs to know. `echoes` has the prompt's text for each request, where it is to be sent back."""

    model: ServedModel
    requests: tuple[Request, ...]
    n: int  # choices per prompt
    echoes: tuple[str, ...] | None
    id: str
    created: int  # seconds since the epoch
    stream: bool
    include_usage: bool
    with_logprobs: bool
    constrained_by: str  # the field that a grammar comes from


def completion_plan(fields: CompletionRequest, model: ServedModel, config: ServerConfig, tenant: str, now: float) -> CompletionPlan:
    """Raises BadRequest, naming the field at fault."""
    prompts = _prompts(fields, model)
    params = _params(fields, model, config)
    most = CHOICES_PER_N * config.max_n
    if len(prompts) * params.n > most:
        raise BadRequest(
            f"{len(prompts)} prompts with {params.n} choices each are more than the {most} answers that one call gives", param="prompt"
        )
    if fields.stream_options is not None and not fields.stream:
        raise BadRequest("stream_options is for streams; set stream to true or leave it out", param="stream_options")
    id = new_id("cmpl-")
    echoes = tuple(_text(p, model, params) for p in prompts for _ in range(params.n)) if fields.echo else None
    return CompletionPlan(
        model=model,
        requests=tuple(requests_for(prompts, params, Origin(id, tenant, model.name, now), fields)),
        n=params.n,
        echoes=echoes,
        id=id,
        created=int(time.time()),
        stream=bool(fields.stream),
        include_usage=fields.stream_options is not None and bool(fields.stream_options.include_usage),
        with_logprobs=fields.logprobs is not None,
        constrained_by="structured_outputs" if fields.structured_outputs is not None else "response_format",
    )


def _params(fields: CompletionRequest, model: ServedModel, config: ServerConfig) -> SamplingParams:
    params = sampling_params(fields, model, config)
    if fields.logprobs is not None:
        check_top_logprobs(fields.logprobs, config, "logprobs")
    most = model.defaults.max_tokens if fields.max_tokens is None else fields.max_tokens
    if most == 0 and not fields.echo:
        raise BadRequest("max_tokens is 0, which gives something to say only with echo", param="max_tokens")
    check_lengths(most, params.min_tokens)
    scored = fields.logprobs if fields.echo else None
    return msgspec.structs.replace(params, max_tokens=most, logprobs=fields.logprobs, prompt_logprobs=scored)


def _prompts(fields: CompletionRequest, model: ServedModel) -> list[Prompt]:
    """Text, ids, or a list of either; never a mixture."""
    given = fields.prompt
    special = fields.add_special_tokens is not False
    if isinstance(given, str):
        return [_of_text(given, special, "prompt")]
    if not given:
        raise BadRequest("prompt is empty; send text or token ids", param="prompt")
    ids = [item for item in given if isinstance(item, int)]
    if len(ids) == len(given):
        return [_of_ids(ids, model, "prompt")]
    if ids or len({type(item) for item in given}) > 1:
        raise BadRequest("prompt mixes kinds; send a text, a list of texts, a list of token ids or a list of such lists", param="prompt")
    return [
        _of_text(item, special, f"prompt[{i}]") if isinstance(item, str) else _of_ids(item, model, f"prompt[{i}]")
        for i, item in enumerate(given)
        if not isinstance(item, int)
    ]


def _of_text(text: str, special: bool, param: str) -> Prompt:
    if not text:
        raise BadRequest(f"{param} is empty; send text or token ids", param=param)
    return TextPrompt(text, add_special_tokens=special)


def _of_ids(ids: list[int], model: ServedModel, param: str) -> Prompt:
    if not ids:
        raise BadRequest(f"{param} is empty; send text or token ids", param=param)
    # The extremes stand for all: one comparison for each of a million ids is done in C.
    check_id(min(ids), model, param)
    check_id(max(ids), model, param)
    return TokenPrompt(tuple(ids))


def _text(prompt: Prompt, model: ServedModel, params: SamplingParams) -> str:
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt)
    return model.tokenizer.decode(prompt.ids, skip_special_tokens=params.skip_special_tokens)
