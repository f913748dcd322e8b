"""`POST /v1/completions`: text completions, and the log-probabilities of a prompt (echo, logprobs, max_tokens 0)."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import aclosing
from functools import partial
from typing import Literal

import msgspec
from msgspec import UNSET

from camshaft.api.call import Call
from camshaft.api.completion_plan import CompletionPlan, completion_plan
from camshaft.api.constraint import blaming
from camshaft.api.edge import Edge
from camshaft.api.fanout import events
from camshaft.api.finish import noted, patience_s
from camshaft.api.parts import usage_of
from camshaft.api.sse import DONE, TextEvents, struct_event
from camshaft.api.tokens import LegacyLog, joined
from camshaft.schema.completions import Completion, CompletionChoice, CompletionRequest, LegacyLogprobs
from camshaft.schema.decode import decode
from camshaft.schema.fields import Usage
from camshaft.types import Delta, Event, Finished, Scored, TokenPrompt

_MARKER = "\x00text\x00"


async def completions(edge: Edge, call: Call) -> None:
    body = await call.body(edge.config.max_body_bytes)
    plan = await edge.off_loop(len(body), partial(_parse, edge, call, body))
    call.notes |= {"model": plan.model.name, "n": len(plan.requests), "stream": plan.stream}
    work = _stream(call, plan) if plan.stream else _answer(call, plan)
    try:
        with blaming(plan.constrained_by):
            await call.while_here(work, patience_s(plan.model, plan.requests[0]))
    finally:
        edge.engine_metrics(plan.model.name).stage("send", call.send_s)


def _parse(edge: Edge, call: Call, body: bytes) -> CompletionPlan:
    fields = decode(body, CompletionRequest, edge.unknown)
    return completion_plan(fields, edge.model(fields.model), edge.config, call.tenant, edge.clock.now())


async def _stream(call: Call, plan: CompletionPlan) -> None:
    choices = [_Choice(plan, i) for i in range(len(plan.requests))]
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            # The head waits for the first event, so that a refusal still has a status of its own.
            if not call.streaming:
                await call.open_stream()
            if data := choices[index].data(event):
                await call.write(data)
    usage = _summed(call, plan, choices)
    await call.close_stream(struct_event(_chunk(plan, (), usage)) + DONE if plan.include_usage else DONE)


async def _answer(call: Call, plan: CompletionPlan) -> None:
    choices = [_Choice(plan, i) for i in range(len(plan.requests))]
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            choices[index].take(event)
    usage = _summed(call, plan, choices)
    await call.reply(200, msgspec.json.encode(_body(plan, tuple(c.whole() for c in choices), usage)))


class _Choice:
    """One choice's text and log-probabilities, the echoed prompt's included, as they come."""

    def __init__(self, plan: CompletionPlan, index: int) -> None:
        self._plan = plan
        self._index = index
        echo = plan.echoes[index] if plan.echoes is not None else ""
        self._echo = echo  # not yet given out
        self._log = LegacyLog()
        request = plan.requests[index]
        # A special token that a client spells out in text is text; only ids can show one.
        shows_special = isinstance(request.prompt, TokenPrompt) and not request.sampling.skip_special_tokens
        self._hidden: Collection[int] = () if shows_special else plan.model.tokenizer.special_ids
        self._texts: list[str] = []
        self._logprobs: list[LegacyLogprobs] = []
        self._events = None if plan.with_logprobs else TextEvents(_chunk(plan, (self._choice(_MARKER),)), _MARKER)
        self._end: Finished | None = None

    @property
    def end(self) -> Finished:
        assert self._end is not None
        return self._end

    def take(self, event: Event) -> tuple[str, LegacyLogprobs | None]:
        """What the event adds."""
        text, logprobs = "", None
        if isinstance(event, Finished):
            self._end = event
        if isinstance(event, Scored):
            text, self._echo = self._echo, ""
            logprobs = self._log.add_prompt(event.logprobs, text, self._hidden)
        elif isinstance(event, Delta | Finished):
            text, self._echo = self._echo, ""
            if isinstance(event, Delta):
                text += event.text
                logprobs = self._log.add(event.logprobs) if self._plan.with_logprobs and event.logprobs else None
        self._texts.append(text)
        if logprobs is not None:
            self._logprobs.append(logprobs)
        return text, logprobs

    def data(self, event: Event) -> bytes:
        """The event as stream chunks. Exactly one chunk of a choice, the last, has a finish reason."""
        text, logprobs = self.take(event)
        out = b""
        if text or logprobs is not None:
            out = (
                self._events.event(text) if self._events is not None else struct_event(_chunk(self._plan, (self._choice(text, logprobs),)))
            )
        if isinstance(event, Finished):
            out += struct_event(_chunk(self._plan, (self._choice("", None, event),)))
        self._texts.clear()
        self._logprobs.clear()
        return out

    def whole(self) -> CompletionChoice:
        logprobs = joined(self._logprobs) if self._plan.with_logprobs else None
        return self._choice("".join(self._texts), logprobs, self.end)

    def _choice(self, text: str, logprobs: LegacyLogprobs | None = None, end: Finished | None = None) -> CompletionChoice:
        reason: Literal["stop", "length"] | None = None if end is None else end.reason
        matched = UNSET if end is None or end.matched is None else end.matched
        return CompletionChoice(index=self._index, text=text, logprobs=logprobs, finish_reason=reason, stop_reason=matched)


def _summed(call: Call, plan: CompletionPlan, choices: list[_Choice]) -> Usage:
    ends = [c.end for c in choices]
    usage = usage_of(ends, plan.n)
    noted(call, usage, [end.reason for end in ends])
    return usage


def _chunk(plan: CompletionPlan, choices: tuple[CompletionChoice, ...], usage: Usage | None = None) -> Completion:
    return _body(plan, choices, usage if plan.include_usage else UNSET)


def _body(plan: CompletionPlan, choices: tuple[CompletionChoice, ...], usage: Usage | msgspec.UnsetType | None) -> Completion:
    return Completion(
        id=plan.id,
        created=plan.created,
        model=plan.model.name,
        system_fingerprint=plan.model.system_fingerprint,
        choices=choices,
        usage=usage,
    )
