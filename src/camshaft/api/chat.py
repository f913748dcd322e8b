"""`POST /v1/chat/completions`."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial

import msgspec
from msgspec import UNSET

from camshaft.api.answer import Collected, finish_reason
from camshaft.api.call import Call
from camshaft.api.chat_plan import ChatPlan, chat_plan
from camshaft.api.chat_stream import ChatEvents
from camshaft.api.constraint import blaming
from camshaft.api.edge import Edge
from camshaft.api.fanout import events
from camshaft.api.finish import noted, patience_s
from camshaft.api.parts import usage_of
from camshaft.api.sse import DONE
from camshaft.api.tokens import chat_logprobs
from camshaft.schema.chat import ChatChoice, ChatCompletion, ChatRequest
from camshaft.schema.decode import decode
from camshaft.types import Delta, Finished, TokenLogprob


async def chat_completions(edge: Edge, call: Call) -> None:
    body = await call.body(edge.config.max_body_bytes)
    plan = await edge.off_loop(len(body), partial(_parse, edge, call, body))
    call.notes |= {"model": plan.model.name, "n": len(plan.requests), "stream": plan.stream}
    work = _stream(call, plan) if plan.stream else _answer(call, plan)
    try:
        with blaming(plan.constrained_by):
            await call.while_here(work, patience_s(plan.model, plan.requests[0]))
    finally:
        edge.engine_metrics(plan.model.name).stage("send", call.send_s)


def _parse(edge: Edge, call: Call, body: bytes) -> ChatPlan:
    fields = decode(body, ChatRequest, edge.unknown)
    return chat_plan(fields, edge.model(fields.model), edge.config, call.tenant, edge.clock.now())


async def _stream(call: Call, plan: ChatPlan) -> None:
    out = ChatEvents(plan)
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            # The head waits for the first event, so that a refusal still has a status of its own.
            if not call.streaming:
                await call.open_stream()
            if data := out.data(index, event):
                await call.write(data)
    usage = usage_of(out.ends, len(plan.requests))
    noted(call, usage, out.reasons)
    await call.close_stream(out.usage(usage) + DONE if plan.include_usage else DONE)


async def _answer(call: Call, plan: ChatPlan) -> None:
    n = len(plan.requests)
    readers = [plan.new_reader() for _ in range(n)]
    answers = [Collected() for _ in range(n)]
    logprobs: list[list[TokenLogprob]] = [[] for _ in range(n)]
    ends: dict[int, Finished] = {}
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            if isinstance(event, Delta):
                answers[index].add(readers[index].feed(event.text))
                logprobs[index].extend(event.logprobs)
            elif isinstance(event, Finished):
                answers[index].add(readers[index].end())
                ends[index] = event
    choices = [
        ChatChoice(
            index=i,
            message=answers[i].message(with_reasoning=plan.with_reasoning),
            logprobs=chat_logprobs(logprobs[i]) if plan.with_logprobs else None,
            finish_reason=finish_reason(ends[i].reason, has_calls=answers[i].has_calls),
            stop_reason=UNSET if (matched := ends[i].matched) is None else matched,
        )
        for i in range(n)
    ]
    usage = usage_of([ends[i] for i in range(n)], n)
    noted(call, usage, [c.finish_reason for c in choices])
    answer = ChatCompletion(
        id=plan.id,
        created=plan.created,
        model=plan.model.name,
        system_fingerprint=plan.model.system_fingerprint,
        choices=choices,
        usage=usage,
    )
    await call.reply(200, msgspec.json.encode(answer))
