"""A request's sampling fields as SamplingParams: the model's defaults, then what the client set, within this server's limits.

Ranges of single fields are in the schema; here is what needs the model, the configuration or two fields at once.
"""

from __future__ import annotations

from typing import TypeVar

from camshaft.api.constraint import grammar_of
from camshaft.api.served import ServedModel
from camshaft.config import ServerConfig
from camshaft.errors import BadRequest
from camshaft.schema.common import CompletionFields
from camshaft.types import SamplingParams

V = TypeVar("V")

MAX_STOP_TOKEN_IDS = 64


def sampling_params(fields: CompletionFields, model: ServedModel, config: ServerConfig) -> SamplingParams:
    """Everything but max_tokens and logprobs, which chat and text completions spell differently. Raises BadRequest, naming the field."""
    d = model.defaults
    n = _or(fields.n, d.n)
    if n > config.max_n:
        raise BadRequest(f"n is {n}; at most {config.max_n} choices are given at once", param="n")
    ids = fields.stop_token_ids or []
    if len(ids) > MAX_STOP_TOKEN_IDS:
        raise BadRequest(f"stop_token_ids has {len(ids)} entries; at most {MAX_STOP_TOKEN_IDS} are taken", param="stop_token_ids")
    for id in ids:
        check_id(id, model, "stop_token_ids")
    return SamplingParams(
        temperature=_or(fields.temperature, d.temperature),
        top_p=_or(fields.top_p, d.top_p),
        top_k=max(0, _or(fields.top_k, d.top_k)),
        min_p=_or(fields.min_p, d.min_p),
        repetition_penalty=_or(fields.repetition_penalty, d.repetition_penalty),
        presence_penalty=_or(fields.presence_penalty, d.presence_penalty),
        frequency_penalty=_or(fields.frequency_penalty, d.frequency_penalty),
        logit_bias=_logit_bias(fields.logit_bias, model, config) if fields.logit_bias else d.logit_bias,
        seed=_or(fields.seed, d.seed),
        n=n,
        min_tokens=_or(fields.min_tokens, d.min_tokens),
        stop=_stops(fields.stop, config) if fields.stop else d.stop,
        stop_token_ids=(*d.stop_token_ids, *ids),
        include_stop=_or(fields.include_stop_str_in_output, d.include_stop),
        ignore_eos=_or(fields.ignore_eos, d.ignore_eos),
        skip_special_tokens=_or(fields.skip_special_tokens, d.skip_special_tokens),
        grammar=grammar_of(fields.response_format, fields.structured_outputs, config),
    )


def check_lengths(max_tokens: int | None, min_tokens: int) -> None:
    """Raises BadRequest where the least is more than the most."""
    if max_tokens is not None and min_tokens > max_tokens:
        raise BadRequest(f"min_tokens is {min_tokens}, more than the {max_tokens} tokens that may be generated", param="min_tokens")


def check_top_logprobs(count: int, config: ServerConfig, param: str) -> None:
    if count > config.max_top_logprobs:
        raise BadRequest(f"{param} is {count}; at most {config.max_top_logprobs} are given", param=param)


def check_id(id: int, model: ServedModel, param: str) -> None:
    """Raises BadRequest for a token id that the model does not have."""
    if not 0 <= id < model.tokenizer.vocab_size:
        raise BadRequest(f"{param}: {id} is no token id of this model, which has 0 to {model.tokenizer.vocab_size - 1}", param=param)


def _or(given: V | None, default: V) -> V:
    return default if given is None else given


def _stops(stop: str | list[str], config: ServerConfig) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    if len(stops) > config.max_stops:
        raise BadRequest(f"stop has {len(stops)} strings; at most {config.max_stops} are taken", param="stop")
    return stops


def _logit_bias(given: dict[str, float], model: ServedModel, config: ServerConfig) -> tuple[tuple[int, float], ...]:
    if len(given) > config.max_logit_bias:
        raise BadRequest(f"logit_bias has {len(given)} entries; at most {config.max_logit_bias} are taken", param="logit_bias")
    biases: dict[int, float] = {}
    for key, bias in given.items():
        # int() alone would take signs, spaces, underscores and other scripts' digits.
        if not (key.isascii() and key.isdigit() and len(key) <= 10):
            raise BadRequest(f"logit_bias: {key[:40]!r} is no token id", param="logit_bias")
        check_id(int(key), model, "logit_bias")
        biases[int(key)] = bias
    return tuple(biases.items())
