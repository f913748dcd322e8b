"""What every Upstream promises, as checks that any of them can be put through.

A test module makes an upstream and calls `check_all(upstream)`, or the checks one by one. The model behind it must be able to generate
at least 40 tokens for a short prompt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from camshaft.types import Delta, Event, Failed, Finished, Health, Request, SamplingParams, Scored, Started, TokenPrompt, Upstream

PROMPT = TokenPrompt((72, 101, 108, 108, 111))
LONG = SamplingParams(temperature=0, max_tokens=40, ignore_eos=True)
LIMIT_S = 30.0


async def events_of(upstream: Upstream, request: Request) -> list[Event]:
    """All events of one answer, in bounded time."""
    async with asyncio.timeout(LIMIT_S):
        return [event async for event in upstream.stream(request)]


def check_order(events: Sequence[Event]) -> None:
    """Started? Scored? Delta* and exactly one terminal event, which is the last."""
    kinds = [type(event) for event in events]
    assert kinds, "no event at all"
    assert kinds[-1] in (Finished, Failed), f"the last event is {kinds[-1].__name__}"
    assert sum(kind in (Finished, Failed) for kind in kinds) == 1, "more than one terminal event"
    rest = kinds[:-1]
    if rest and rest[0] is Started:
        rest = rest[1:]
    if rest and rest[0] is Scored:
        rest = rest[1:]
    assert all(kind is Delta for kind in rest), f"out of order: {[kind.__name__ for kind in kinds]}"


async def check_an_answer(upstream: Upstream) -> None:
    events = await events_of(upstream, Request(id="one", prompt=PROMPT, sampling=LONG))
    check_order(events)
    terminal = events[-1]
    assert isinstance(terminal, Finished), terminal
    assert terminal.reason == "length"
    assert terminal.usage.n_prompt == 5
    assert terminal.usage.n_output == 40 == _n_tokens(events)


async def check_repeatable(upstream: Upstream) -> None:
    """Greedy and seeded answers are the same each time, whoever else asks."""
    for sampling in (LONG, SamplingParams(temperature=1.0, seed=11, max_tokens=40, ignore_eos=True)):
        requests = [Request(id=f"r{i}", prompt=PROMPT, sampling=sampling) for i in range(4)]
        answers = await asyncio.gather(*[events_of(upstream, request) for request in requests])
        texts = {_text(answer) for answer in answers}
        assert len(texts) == 1, texts


async def check_a_bad_request(upstream: Upstream) -> None:
    """A failure is an event with a client's status, not an exception; the next request is unharmed."""
    for request in (
        Request(id="bad", prompt=TokenPrompt(()), sampling=LONG),
        Request(id="bad", prompt=PROMPT, sampling=SamplingParams(temperature=float("nan"))),
        Request(id="bad", prompt=PROMPT, sampling=SamplingParams(n=0)),
        Request(id="bad", prompt=TokenPrompt((5,) * 100_000), sampling=LONG),
    ):
        events = await events_of(upstream, request)
        check_order(events)
        terminal = events[-1]
        assert isinstance(terminal, Failed), terminal
        assert terminal.error.status == 400, terminal.error
        assert terminal.error.message
    await check_an_answer(upstream)


async def check_a_deadline(upstream: Upstream) -> None:
    """A time limit that is over at once still gives one terminal event."""
    events = await events_of(upstream, Request(id="late", prompt=PROMPT, sampling=LONG, deadline_s=1e-6))
    check_order(events)
    terminal = events[-1]
    assert isinstance(terminal, Failed), terminal
    assert terminal.error.status == 504


async def check_leaving(upstream: Upstream) -> None:
    """Closing the iterator, at whatever moment, frees what the request held."""
    for n_events in range(4):
        stream = upstream.stream(Request(id="gone", prompt=PROMPT, sampling=LONG))
        for _ in range(n_events):
            await anext(stream)  # type: ignore[arg-type]
        await stream.aclose()  # type: ignore[attr-defined]
    await until(upstream, lambda health: health.running == 0 and health.waiting == 0)
    await check_an_answer(upstream)


async def check_a_cancelled_task(upstream: Upstream) -> None:
    """A reader whose task is cancelled has left, too."""
    task = asyncio.ensure_future(events_of(upstream, Request(id="gone", prompt=PROMPT, sampling=LONG)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until(upstream, lambda health: health.running == 0 and health.waiting == 0)


async def check_a_crowd(upstream: Upstream) -> None:
    """Many at once, some of whom leave: each of the others gets its own answer, whole, and nothing is left of any."""

    async def one(i: int) -> None:
        request = Request(id=f"r{i}", prompt=PROMPT, sampling=LONG)
        if i % 3:
            events = await events_of(upstream, request)
            check_order(events)
            assert isinstance(events[-1], Finished), events[-1]
            return
        stream = upstream.stream(request)
        for _ in range(i % 4):
            await anext(stream)  # type: ignore[arg-type]
        await stream.aclose()  # type: ignore[attr-defined]

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(one(i) for i in range(24)))
    await until(upstream, lambda health: health.running == 0 and health.waiting == 0)


async def check_a_slow_reader(upstream: Upstream) -> None:
    """Who does not read holds up nobody else, and finds all of it when it reads on."""
    slow = upstream.stream(Request(id="slow", prompt=PROMPT, sampling=LONG))
    async with asyncio.timeout(LIMIT_S):
        seen = [await anext(slow)]  # type: ignore[arg-type]
        others = await asyncio.gather(*(events_of(upstream, Request(id=f"r{i}", prompt=PROMPT, sampling=LONG)) for i in range(4)))
        seen += [event async for event in slow]
    check_order(seen)
    assert {_text(events) for events in others} == {_text(seen)}
    assert _n_tokens(seen) == 40


async def check_closing(upstream: Upstream) -> None:
    """What runs ends with one terminal event; what comes later is refused; closing twice is closing once. Nothing can follow this check."""
    running = [asyncio.ensure_future(events_of(upstream, Request(id=f"r{i}", prompt=PROMPT, sampling=LONG))) for i in range(8)]
    await asyncio.sleep(0)
    await upstream.close()
    for events in await asyncio.gather(*running):
        check_order(events)
    await upstream.close()
    late = await events_of(upstream, Request(id="late", prompt=PROMPT, sampling=LONG))
    check_order(late)
    terminal = late[-1]
    assert isinstance(terminal, Failed)
    assert terminal.error.status == 503
    assert not (await upstream.health()).ready


async def until(upstream: Upstream, condition: Callable[[Health], bool]) -> None:
    """Wait for a state of health, in bounded time."""
    async with asyncio.timeout(LIMIT_S):
        while not condition(await upstream.health()):  # noqa: ASYNC110 - health is asked for, nobody announces it
            await asyncio.sleep(0.002)


def _text(events: Sequence[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Delta))


def _n_tokens(events: Sequence[Event]) -> int:
    return sum(len(e.ids) or e.n_tokens for e in events if isinstance(e, Delta))


CHECKS: tuple[Callable[[Upstream], Awaitable[None]], ...] = (
    check_an_answer,
    check_repeatable,
    check_a_bad_request,
    check_a_deadline,
    check_leaving,
    check_a_cancelled_task,
    check_a_crowd,
    check_a_slow_reader,
    check_closing,
)


async def check_all(upstream: Upstream) -> None:
    """Every check in turn; the upstream is closed at the end."""
    for check in CHECKS:
        await check(upstream)
