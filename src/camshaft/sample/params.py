"""Rules of sampling parameters. Each refusal names the field, the range and what was given."""

from __future__ import annotations

import math

from camshaft.errors import BadRequest
from camshaft.types import SamplingParams

MAX_TOP_LOGPROBS = 1024
MAX_N = 1024
MAX_STOPS = 1024
MAX_STOP_CHARS = 65_536
MAX_BIAS = 1_000_000
SEED_BITS = 64

_NUMBERS: tuple[tuple[str, float, float], ...] = (
    ("temperature", 0.0, 100.0),
    ("min_p", 0.0, 1.0),
    ("presence_penalty", -2.0, 2.0),
    ("frequency_penalty", -2.0, 2.0),
)
_COUNTS: tuple[tuple[str, int, int], ...] = (
    ("top_k", 0, 1 << 31),
    ("n", 1, MAX_N),
    ("max_tokens", 0, 1 << 31),
    ("min_tokens", 0, 1 << 31),
    ("logprobs", 0, MAX_TOP_LOGPROBS),
    ("prompt_logprobs", 0, MAX_TOP_LOGPROBS),
    ("seed", -(1 << 63), (1 << SEED_BITS) - 1),
)


def check(params: SamplingParams, vocab_size: int) -> None:
    """Raises BadRequest for the first field out of range."""
    for name, lo, hi in _NUMBERS:
        _in_range(name, getattr(params, name), lo, hi)
    for name, least, most in _COUNTS:
        value = getattr(params, name)
        if value is not None and not least <= value <= most:
            raise BadRequest(f"{name} must be {least} to {most}, not {value}", param=name)
    # Open at zero: a nucleus of nothing holds no token, and a penalty that divides by zero is none.
    _above_zero("top_p", params.top_p, 1.0)
    _above_zero("repetition_penalty", params.repetition_penalty, 100.0)
    if params.max_tokens is not None and params.min_tokens > params.max_tokens:
        raise BadRequest(f"min_tokens ({params.min_tokens}) is more than max_tokens ({params.max_tokens})", param="min_tokens")
    _check_stops(params)
    _check_ids(params, vocab_size)


def _check_stops(params: SamplingParams) -> None:
    if len(params.stop) > MAX_STOPS or len(params.stop_token_ids) > MAX_STOPS:
        raise BadRequest(f"at most {MAX_STOPS} stops can be given", param="stop")
    if any(not stop for stop in params.stop):
        raise BadRequest("a stop string is empty; it would end every answer at once", param="stop")
    if sum(map(len, params.stop)) > MAX_STOP_CHARS:
        raise BadRequest(f"the stop strings have more than {MAX_STOP_CHARS} characters together", param="stop")


def _check_ids(params: SamplingParams, vocab_size: int) -> None:
    if len(params.logit_bias) > MAX_BIAS:
        raise BadRequest(f"logit_bias has {len(params.logit_bias)} entries; at most {MAX_BIAS} are taken", param="logit_bias")
    for id, bias in params.logit_bias:
        _check_id(id, vocab_size, "logit_bias")
        _in_range("logit_bias", bias, -100.0, 100.0)
    for id in params.stop_token_ids:
        _check_id(id, vocab_size, "stop_token_ids")


def _check_id(id: int, vocab_size: int, name: str) -> None:
    if not 0 <= id < vocab_size:
        raise BadRequest(f"{name} names token {id}, but ids go from 0 to {vocab_size - 1}", param=name)


def _in_range(name: str, value: float, lo: float, hi: float) -> None:
    # Written so that NaN fails it.
    if not (lo <= value <= hi and math.isfinite(value)):
        raise BadRequest(f"{name} must be {lo:g} to {hi:g}, not {value:g}", param=name)


def _above_zero(name: str, value: float, hi: float) -> None:
    if not 0.0 < value <= hi:
        raise BadRequest(f"{name} must be above 0 and at most {hi:g}, not {value:g}", param=name)
