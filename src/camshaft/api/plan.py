"""Plan: a call that was checked, chat and text alike: what it asks the model for, and how its answer is named."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from camshaft.api.call import Call
from camshaft.api.served import ServedModel
from camshaft.errors import BadRequest
from camshaft.schema.common import CompletionFields
from camshaft.types import Clock, Prompt, Request, SamplingParams


@dataclass(frozen=True)
class Plan:
    """One request per prompt and choice, a prompt's choices next to each other; the answer's `index` is the place in `requests`."""

    model: ServedModel
    requests: tuple[Request, ...]
    n: int  # choices per prompt
    id: str
    created: int  # seconds since the epoch
    stream: bool
    include_usage: bool
    with_logprobs: bool
    constrained_by: str  # the field that a grammar comes from


class Origin(NamedTuple):
    """Where a call comes from."""

    prefix: str  # of the answer's id
    tenant: str
    arrived_at: float  # Clock.now()
    session: str = ""  # from a header
    trace: str = ""  # traceparent

    @classmethod
    def of(cls, prefix: str, call: Call, clock: Clock) -> Origin:
        # For a fallback the time that others have taken counts: the client has one deadline.
        ago_s = time.perf_counter() - call.began_at if call.passed else 0.0
        return cls(prefix, call.tenant, clock.now() - ago_s, call.session, call.trace)


class Wanted(NamedTuple):
    """What a call asks for, from fields that chat and text completions spell differently."""

    prompts: Sequence[Prompt]
    params: SamplingParams
    with_logprobs: bool
    constrained_by: str = ""  # where it is neither response_format nor structured_outputs


def make_plan(fields: CompletionFields, model: ServedModel, wanted: Wanted, origin: Origin) -> Plan:
    """Raises BadRequest for options of a stream where there is none."""
    options = fields.stream_options
    if options is not None and not fields.stream:
        raise BadRequest("stream_options is for streams; set stream to true or leave it out", param="stream_options")
    # Made here, so that no two are alike whatever ids clients send.
    id = origin.prefix + secrets.token_hex(12)
    return Plan(
        model=model,
        requests=tuple(_requests(fields, model, wanted, id, origin)),
        n=wanted.params.n,
        id=id,
        created=int(time.time()),
        stream=bool(fields.stream),
        include_usage=options is not None and bool(options.include_usage),
        with_logprobs=wanted.with_logprobs,
        constrained_by=wanted.constrained_by or ("response_format" if fields.structured_outputs is None else "structured_outputs"),
    )


def _requests(fields: CompletionFields, model: ServedModel, wanted: Wanted, id: str, origin: Origin) -> list[Request]:
    """Choices of one prompt share a seed and differ in `choice`, which is part of the random key.

    A seed that nobody gave is drawn here, for each prompt anew, so that equal prompts of one call do not get equal answers; a server of
    another make draws its own.
    """
    prompts, params = wanted.prompts, wanted.params
    made: list[Request] = []
    for number, prompt in enumerate(prompts):
        seeded = params if params.seed is not None or model.foreign else msgspec.structs.replace(params, seed=secrets.randbits(63))
        for choice in range(params.n):
            index = number * params.n + choice
            made.append(
                Request(
                    id=id if len(prompts) * params.n == 1 else f"{id}-{index}",
                    prompt=prompt,
                    sampling=seeded,
                    model=model.name,
                    choice=choice,
                    siblings=f"{id}-p{number}" if params.n > 1 else "",
                    priority=fields.priority or 0,
                    deadline_s=fields.timeout,
                    tenant=origin.tenant,
                    cache_salt=salt(origin.tenant, fields.cache_salt or ""),
                    session=fields.session_id or origin.session,
                    arrived_at=origin.arrived_at,
                    trace=origin.trace,
                )
            )
    return made


def salt(tenant: str, given: str) -> str:
    """A KV salt that no other tenant can arrive at, whatever salt it sends."""
    if not tenant and not given:
        return ""
    return hashlib.sha256(msgspec.json.encode([tenant, given])).hexdigest()
