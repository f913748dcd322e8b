"""Ranges of sampling parameters: each refusal names the field and what is allowed."""

from __future__ import annotations

import math

import pytest

from camshaft.errors import BadRequest
from camshaft.sample.params import check
from camshaft.types import SamplingParams

BAD: list[tuple[dict[str, object], str]] = [
    ({"temperature": -1.0}, "temperature"),
    ({"temperature": math.nan}, "temperature"),
    ({"temperature": math.inf}, "temperature"),
    ({"top_p": 0.0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_p": math.nan}, "top_p"),
    ({"top_k": -1}, "top_k"),
    ({"min_p": -0.1}, "min_p"),
    ({"min_p": 1.5}, "min_p"),
    ({"repetition_penalty": 0.0}, "repetition_penalty"),
    ({"repetition_penalty": math.nan}, "repetition_penalty"),
    ({"presence_penalty": 2.5}, "presence_penalty"),
    ({"frequency_penalty": -2.5}, "frequency_penalty"),
    ({"n": 0}, "n"),
    ({"n": 10**9}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"logprobs": -1}, "logprobs"),
    ({"prompt_logprobs": 10**6}, "prompt_logprobs"),
    ({"seed": 1 << 64}, "seed"),
    ({"stop": ("",)}, "stop"),
    ({"stop": ("x",) * 2000}, "stop"),
    ({"stop": ("x" * 70_000,)}, "stop"),
    ({"stop_token_ids": (100,)}, "stop_token_ids"),
    ({"stop_token_ids": (-1,)}, "stop_token_ids"),
    ({"logit_bias": ((100, 1.0),)}, "logit_bias"),
    ({"logit_bias": ((-1, 1.0),)}, "logit_bias"),
    ({"logit_bias": ((1, 101.0),)}, "logit_bias"),
    ({"logit_bias": ((1, math.nan),)}, "logit_bias"),
]


@pytest.mark.parametrize(("fields", "param"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_out_of_range_is_refused_by_name(fields: dict[str, object], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        check(SamplingParams(**fields), vocab_size=100)  # type: ignore[arg-type]
    assert caught.value.param == param
    assert param in str(caught.value) or param == "stop"
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 2.0, "top_p": 1e-6, "top_k": 1, "min_p": 1.0},
        {"max_tokens": 0},
        {"seed": -1},
        {"seed": (1 << 64) - 1},
        {"stop": ("a",) * 4, "stop_token_ids": (0, 99)},
        {"logit_bias": ((0, -100.0), (99, 100.0))},
        {"min_tokens": 4, "max_tokens": 4},
        {"logprobs": 0},
    ],
    ids=str,
)
def test_what_is_in_range_is_taken(fields: dict[str, object]) -> None:
    check(SamplingParams(**fields), vocab_size=100)  # type: ignore[arg-type]
