"""A text completion call, checked and made into requests."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from camshaft.api.plan import Origin, Plan, Wanted, make_plan
from camshaft.api.sampling import check_id, check_lengths, check_top_logprobs, sampling_params
from camshaft.api.served import ServedModel
from camshaft.config import ServerConfig
from camshaft.errors import BadRequest
from camshaft.schema.completions import CompletionRequest
from camshaft.types import Prompt, SamplingParams, TextPrompt, TokenPrompt

# Prompts times choices of one call, as a multiple of the largest n.
CHOICES_PER_N = 16


class CompletionPlan(NamedTuple):
    """What a text completion needs to know beyond the plan that all calls have."""

    plan: Plan
    echoes: tuple[str, ...] | None  # the prompt's text for each request, where it is to be sent back


def completion_plan(fields: CompletionRequest, model: ServedModel, config: ServerConfig, origin: Origin) -> CompletionPlan:
    """Raises BadRequest, naming the field at fault."""
    prompts = _prompts(fields, model)
    params = _params(fields, model, config)
    most = CHOICES_PER_N * config.max_n
    if len(prompts) * params.n > most:
        raise BadRequest(
            f"{len(prompts)} prompts with {params.n} choices each are more than the {most} answers that one call gives", param="prompt"
        )
    plan = make_plan(fields, model, Wanted(prompts, params, fields.logprobs is not None), origin)
    echoes = tuple(_text(p, model, params) for p in prompts for _ in range(params.n)) if fields.echo else None
    return CompletionPlan(plan, echoes)


def _params(fields: CompletionRequest, model: ServedModel, config: ServerConfig) -> SamplingParams:
    params = sampling_params(fields, model, config)
    if fields.logprobs is not None:
        check_top_logprobs(fields.logprobs, config, "logprobs")
    most = model.defaults.max_tokens if fields.max_tokens is None else fields.max_tokens
    if most == 0 and not fields.echo:
        raise BadRequest("max_tokens is 0, which gives something to say only with echo", param="max_tokens")
    check_lengths(most, params.min_tokens)
    scored = fields.logprobs if fields.echo else None
    if model.foreign and (scored is not None or most == 0):
        raise BadRequest(
            f"{model.name} gives no log-probabilities of a prompt; echo takes no logprobs and no max_tokens of 0 here", param="echo"
        )
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
    if model.foreign:
        raise BadRequest(f"{model.name} is answered by a server whose token ids are not known here; send text", param=param)
    # The extremes stand for all: one comparison for each of a million ids is done in C.
    check_id(min(ids), model, param)
    check_id(max(ids), model, param)
    return TokenPrompt(tuple(ids))


def _text(prompt: Prompt, model: ServedModel, params: SamplingParams) -> str:
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, TokenPrompt)
    return model.tokenizer.decode(prompt.ids, skip_special_tokens=params.skip_special_tokens)
