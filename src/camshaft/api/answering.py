"""What every call that asks a model for an answer does alike: read it, stream it or collect it, say how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Protocol

from camshaft.api.call import Call
from camshaft.api.constraint import blaming
from camshaft.api.edge import Edge
from camshaft.api.fanout import events
from camshaft.api.headers import headers
from camshaft.api.plan import Plan
from camshaft.api.sse import DONE
from camshaft.api.watch import Watch
from camshaft.errors import BadRequest, CamshaftError, PromptTooLong, Unavailable
from camshaft.schema.fields import PromptTokensDetails, Usage
from camshaft.types import Event, Finished, Request

# The engine ends a request at its deadline. The edge waits a little longer, so that the engine's own word arrives first, and a
# client that takes no bytes is let go all the same.
GRACE_S = 30.0


class Writer(Protocol):
    """One call's answer in the shape of its API. `index` is that of the choice."""

    @property
    def plan(self) -> Plan: ...

    def chunk(self, index: int, event: Event) -> bytes:
        """The event as server-sent events. May be empty: text can be held back, and admission is nothing that a client sees."""
        ...

    def usage_chunk(self, usage: Usage) -> bytes:
        """The last event of a stream that was asked for its usage."""
        ...

    def take(self, index: int, event: Event) -> None:
        """Keep what the event adds, for an answer that is sent whole."""
        ...

    def whole(self, ends: Sequence[Finished], usage: Usage) -> bytes:
        """The answer, with the end of each choice."""
        ...

    def reason(self, index: int, end: Finished) -> str:
        """Why the choice ended, as this API says it."""
        ...


Read = Callable[[Edge, Call, bytes], Writer]  # body -> what to ask and how to answer; raises BadRequest


async def answer(edge: Edge, call: Call, read: Read) -> None:
    """The handler of both APIs."""
    body = await call.body(edge.config.max_body_bytes)
    refused: CamshaftError | None = None  # what to say of the models that were asked so far, where no other answers
    while True:
        writer: Writer | None = None
        try:
            # Another model reads the body anew: its template, its tool calls and its limits are its own.
            writer = await edge.off_loop(len(body), partial(read, edge, call, body))
            await _attempt(edge, call, writer)
            return
        except (PromptTooLong, Unavailable) as error:
            if call.status or edge.draining or writer is None:
                raise
            # Who is down may be back, and then holds it; else the word of the model that was asked for counts.
            refused = error if refused is None or isinstance(error, Unavailable) else refused
            passed = (*call.passed, writer.plan.model.name)
            call.notes["passed"] = ",".join(passed)
            if not edge.directory.can_fall_back(call.tenant, passed):
                raise refused from None
            call.passed, call.notes = passed, {"passed": call.notes["passed"]}
        except BadRequest:
            if refused is None or call.status:
                raise
            # What a fallback does not take may be right for the model that was asked for: to ask otherwise is not the answer.
            raise refused from None


async def _attempt(edge: Edge, call: Call, writer: Writer) -> None:
    plan = writer.plan
    version = plan.model.version or None
    call.notes |= {"model": plan.model.name, "version": version, "answer": plan.id, "n": len(plan.requests), "stream": plan.stream}
    watch = Watch(call.began_at)
    work = _stream(edge, call, writer, watch) if plan.stream else _reply(edge, call, writer, watch)
    try:
        with blaming(plan.constrained_by):
            await call.while_here(work, _patience_s(plan.requests[0], plan.model.longest_s))
    finally:
        # What the answer itself says of its tokens is better than what was seen go by.
        call.notes = watch.notes() | call.notes
        edge.engine_metrics(plan.model.name).stage("send", call.send_s)


async def _stream(edge: Edge, call: Call, writer: Writer, watch: Watch) -> None:
    plan = writer.plan
    ends: dict[int, Finished] = {}
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            # The head waits for the first event, so that a refusal still has a status of its own.
            if not call.streaming:
                await call.open_stream(headers(edge, call, event))
            watch.see(event)
            if isinstance(event, Finished):
                ends[index] = event
            data = writer.chunk(index, event)
            if data and not call.write_now(data):
                await call.write(data)
    usage = _summed(call, writer, ends)
    await call.close_stream(writer.usage_chunk(usage) + DONE if plan.include_usage else DONE)


async def _reply(edge: Edge, call: Call, writer: Writer, watch: Watch) -> None:
    plan = writer.plan
    ends: dict[int, Finished] = {}
    shown: dict[bytes, bytes] | None = None
    async with aclosing(events(plan.model.upstream, plan.requests)) as stream:
        async for index, event in stream:
            if shown is None:
                shown = headers(edge, call, event)
            watch.see(event)
            if isinstance(event, Finished):
                ends[index] = event
            writer.take(index, event)
    usage = _summed(call, writer, ends)
    await call.reply(200, writer.whole([ends[i] for i in range(len(ends))], usage), headers=shown or {})


def _patience_s(request: Request, longest_s: float) -> float:
    """Seconds after which a call is given up, whoever holds it."""
    asked = request.deadline_s
    return (longest_s if asked is None else min(asked, longest_s)) + GRACE_S


def _summed(call: Call, writer: Writer, ends: dict[int, Finished]) -> Usage:
    """The usage of the whole call, which its log line has too."""
    usage = _usage([ends[i] for i in range(len(ends))], writer.plan.n)
    call.notes["prompt"] = usage.prompt_tokens
    call.notes["cached"] = usage.prompt_tokens_details.cached_tokens
    call.notes["output"] = usage.completion_tokens
    for moved in [end.route for end in ends.values() if end.route is not None]:
        call.notes |= {"replica": moved.replica, "tries": moved.n_tries}
    call.notes["finish"] = ",".join(sorted({writer.reason(i, end) for i, end in ends.items()}))
    return usage


def _usage(ends: Sequence[Finished], n: int) -> Usage:
    """A prompt counts once, not once per choice; its cached tokens are the first choice's."""
    prompt = sum(e.usage.n_prompt for e in ends[::n])
    output = sum(e.usage.n_output for e in ends)
    return Usage(prompt, output, prompt + output, PromptTokensDetails(sum(e.usage.n_cached for e in ends[::n])))
