"""From a parsed call to the requests that the upstream answers: one per prompt and choice."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from camshaft.schema.fields import PromptTokensDetails, Usage
from camshaft.types import Finished, Prompt, Request, SamplingParams


class ServingFields(Protocol):
    """How a request is to be served, in chat and text completions alike."""

    @property
    def priority(self) -> int | None: ...
    @property
    def cache_salt(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def timeout(self) -> float | None: ...


class Origin(NamedTuple):
    """Where a call comes from."""

    id: str  # made here, so that no two are alike whatever ids clients send
    tenant: str
    model: str
    arrived_at: float  # Clock.now()


def new_id(prefix: str) -> str:
    return prefix + secrets.token_hex(12)


def requests_for(prompts: Sequence[Prompt], params: SamplingParams, origin: Origin, fields: ServingFields) -> list[Request]:
    """n requests per prompt, a prompt's choices next to each other. The order is that of the answer's `index`.

    Choices of one prompt share a seed and differ in `choice`, which is part of the random key. A seed that nobody gave is drawn
    here, for each prompt anew, so that equal prompts of one call do not get equal answers.
    """
    made: list[Request] = []
    for number, prompt in enumerate(prompts):
        seeded = params if params.seed is not None else msgspec.structs.replace(params, seed=secrets.randbits(63))
        for choice in range(params.n):
            index = number * params.n + choice
            made.append(
                Request(
                    id=origin.id if len(prompts) * params.n == 1 else f"{origin.id}-{index}",
                    prompt=prompt,
                    sampling=seeded,
                    model=origin.model,
                    choice=choice,
                    siblings=f"{origin.id}-p{number}" if params.n > 1 else "",
                    priority=fields.priority or 0,
                    deadline_s=fields.timeout,
                    tenant=origin.tenant,
                    cache_salt=salt(origin.tenant, fields.cache_salt or ""),
                    session=fields.session_id or "",
                    arrived_at=origin.arrived_at,
                )
            )
    return made


def salt(tenant: str, given: str) -> str:
    """A KV salt that no other tenant can arrive at, whatever salt it sends."""
    if not tenant and not given:
        return ""
    return hashlib.sha256(msgspec.json.encode([tenant, given])).hexdigest()


def usage_of(ends: Sequence[Finished], n: int) -> Usage:
    """The sum over a call's requests. A prompt counts once, not once per choice; its cached tokens are the first choice's."""
    prompt = sum(e.usage.n_prompt for e in ends[::n])
    output = sum(e.usage.n_output for e in ends)
    return Usage(prompt, output, prompt + output, PromptTokensDetails(sum(e.usage.n_cached for e in ends[::n])))
