"""A request at a version's door: it waits, it is answered, it goes on elsewhere, and nothing of it is left."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import msgspec
import pytest

from camshaft.errors import CamshaftError, Overloaded, ReplicaLost
from camshaft.gateway.line import LineConfig
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.retry import RetryConfig
from camshaft.types import Delta, Event, Failed, Finished, Grammar, Load, ReplicaInfo, Request, SamplingParams, Started, TokenPrompt, Usage
from contract.upstream_contract import check_order
from gateway_rig import DispatchRig, Mortal, until

PROMPT = TokenPrompt(tuple(b"once upon a time"))


@pytest.fixture
async def rig() -> AsyncIterator[DispatchRig]:
    rig = DispatchRig()
    yield rig
    await rig.close()


def asking(id: str = "r", n: int = 40, **sampling: object) -> Request:
    fields = {"temperature": 0.0, "seed": 7, "max_tokens": n, "ignore_eos": True, "logprobs": 1} | sampling
    return Request(id=id, prompt=PROMPT, sampling=SamplingParams(**fields))  # type: ignore[arg-type]


async def events_of(rig: DispatchRig, request: Request) -> list[Event]:
    async with aclosing(rig.dispatch.stream(request)) as stream:  # type: ignore[type-var]
        return [event async for event in stream]


def said(events: Sequence[Event]) -> tuple[str, tuple[int, ...], list[object], object]:
    """All that a client sees, however it was cut into events."""
    deltas = [e for e in events if isinstance(e, Delta)]
    last = events[-1]
    assert isinstance(last, Finished), last
    ids = tuple(i for d in deltas for i in d.ids)
    return "".join(d.text for d in deltas), ids, [p for d in deltas for p in d.logprobs], (last.reason, last.matched, last.usage)


async def test_an_answer_says_which_way_it_took(rig: DispatchRig) -> None:
    rig.add("a", Mortal())
    events = await events_of(rig, asking())
    check_order(events)
    started = events[0]
    assert isinstance(started, Started)
    assert started.route is not None
    assert (started.route.version, started.route.replica, started.route.n_tries) == ("v1", "a", 1)
    assert rig.is_at_rest()


@pytest.mark.parametrize(
    "sampling",
    [{}, {"temperature": 1.0}, {"grammar": Grammar("regex", "[a-z]{60}"), "ignore_eos": False}, {"stop": ("\x07q",), "temperature": 1.0}],
    ids=["greedy", "sampled", "grammar", "stop"],
)
async def test_a_stream_whose_replica_dies_goes_on_elsewhere_without_a_seam(rig: DispatchRig, sampling: dict[str, object]) -> None:
    """Killed after k tokens: no text twice, none lost, and usage counted once (gateway failures, rows 14 and 15)."""
    rig.add("still", Mortal())
    undisturbed = said(await events_of(rig, asking(**sampling)))
    rig.router.leave("still")
    names = iter(f"r{i}" for i in range(100))
    current = next(names)
    rig.add(current, Mortal(token_s=0.002))
    events: list[Event] = []
    async with aclosing(rig.dispatch.stream(asking(**sampling))) as stream:  # type: ignore[type-var]
        async for event in stream:
            events.append(event)
            if isinstance(event, Delta) and len(rig.moves) < 4:
                dying, current = current, next(names)
                rig.add(current, Mortal(token_s=0.002))
                rig.kill(dying)
    check_order(events)
    assert len(rig.moves) >= 2
    assert all(move.moved for move in rig.moves)
    assert said(events) == undisturbed
    end = events[-1]
    assert isinstance(end, Finished)
    assert end.route is not None
    assert end.route.n_tries == len(rig.moves) + 1
    assert rig.is_at_rest()


async def test_a_replica_that_dies_before_the_first_token_is_not_noticed(rig: DispatchRig) -> None:
    slow = rig.add("a", Mortal(token_s=0.3))
    answering = asyncio.ensure_future(events_of(rig, asking(n=3)))
    await until(lambda: bool(slow.asked))
    rig.add("b", Mortal())
    rig.kill("a")
    events = await answering
    assert isinstance(events[-1], Finished)
    assert isinstance(events[0], Started)
    assert events[0].route is not None
    assert events[0].route.replica in ("a", "b")


async def test_output_moves_only_where_the_same_numbers_are_computed(rig: DispatchRig) -> None:
    rig.add("a", Mortal("one", token_s=0.002))
    other = Mortal("other")
    events: list[Event] = []
    # Nobody else computes alike, and nobody ever will: the wait is bounded by the deadline.
    request = msgspec.structs.replace(asking(n=400), deadline_s=1.0)
    async with aclosing(rig.dispatch.stream(request)) as stream:  # type: ignore[type-var]
        async for event in stream:
            events.append(event)
            if isinstance(event, Delta) and "b" not in rig.backends:
                rig.add("b", other)
                rig.kill("a")
    assert isinstance(events[-1], Failed)
    assert not other.asked
    assert rig.is_at_rest()


async def test_a_foreign_stream_ends_with_a_clear_error_after_its_first_token(rig: DispatchRig) -> None:
    rig.add("a", Mortal("", token_s=0.002))
    rig.add("b", Mortal("", token_s=0.002))
    events: list[Event] = []
    async with aclosing(rig.dispatch.stream(asking(n=400))) as stream:  # type: ignore[type-var]
        async for event in stream:
            events.append(event)
            if isinstance(event, Started) and event.route is not None:
                name = event.route.replica
            if isinstance(event, Delta):
                rig.backends[name].die()
    failed = events[-1]
    assert isinstance(failed, Failed)
    assert failed.error.code == "replica_lost"
    assert "could not go on elsewhere" in failed.error.message
    assert [move.moved for move in rig.moves] == [False]


class Refusing(Mortal):
    """Another make of server, which lives and fails everybody who asks."""

    def __init__(self, error: CamshaftError) -> None:
        super().__init__("")
        self.error = error

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.asked.append(request)
        yield Failed(self.error.info())


async def test_servers_that_live_and_fail_everybody_are_tried_within_the_budget(rig: DispatchRig) -> None:
    """All servers answer with garbage,, and every request asks each of them again and again."""
    servers = [rig.add(name, Refusing(ReplicaLost("the answer is not HTTP"))) for name in ("a", "b")]
    events = await events_of(rig, asking())
    assert isinstance(events[-1], Failed)
    assert events[-1].error.code == "replica_lost"
    assert sum(len(server.asked) for server in servers) <= RetryConfig().tries
    assert rig.is_at_rest()


async def test_who_has_less_time_than_all_replicas_want_to_rest_is_told_at_once(rig: DispatchRig) -> None:
    """The servers name a time to come back, and clients wait out their deadlines in vain; none of them waits here."""
    rig.add("a", Refusing(Overloaded("no more for now", retry_after_s=50.0)))
    first, second = [(await events_of(rig, asking(name)))[-1] for name in ("first", "second")]
    assert isinstance(first, Failed)
    assert isinstance(second, Failed)
    assert "left alone for longer than the deadline" in first.error.message
    assert (first.error.status, second.error.status) == (429, 429)
    assert second.error.retry_after_s is not None
    assert 45 < second.error.retry_after_s <= 50
    assert len(rig.backends["a"].asked) == 1
    assert rig.is_at_rest()


async def test_a_client_that_leaves_leaves_nothing(rig: DispatchRig) -> None:
    """Disconnects during a stream, closes twice, or never reads: counters return to zero (gateway failures, row 1)."""
    rig.add("a", Mortal(token_s=0.001))
    for n_read in (0, 1, 3):
        stream = rig.dispatch.stream(asking(n=400))
        for _ in range(n_read):
            await anext(stream)  # type: ignore[arg-type]
        await stream.aclose()  # type: ignore[attr-defined]
        await stream.aclose()  # type: ignore[attr-defined]
        assert rig.is_at_rest()


async def test_one_who_waits_in_line_and_leaves_is_forgotten() -> None:
    rig = DispatchRig()
    rig.add("a", Mortal(token_s=0.002))
    running = [asyncio.ensure_future(events_of(rig, asking(f"r{i}", n=200))) for i in range(8)]
    await until(lambda: rig.line.n_running == 8)
    waiting = [asyncio.ensure_future(events_of(rig, asking(f"w{i}"))) for i in range(5)]
    await until(lambda: len(rig.line) == 5)
    for task in waiting[:3]:
        task.cancel()
    await asyncio.gather(*waiting[:3], return_exceptions=True)
    assert len(rig.line) == 2
    for events in await asyncio.gather(*running, *waiting[3:]):
        assert isinstance(events[-1], Finished)
    assert rig.is_at_rest()
    await rig.close()


async def test_what_no_bound_allows_is_refused_at_once() -> None:
    rig = DispatchRig(LineConfig(max_requests=1, tenant_share=1.0))
    rig.add("a", Mortal(token_s=0.002))
    running = [asyncio.ensure_future(events_of(rig, asking(f"r{i}", n=100))) for i in range(8)]
    await until(lambda: rig.line.n_running == 8)
    waiting = asyncio.ensure_future(events_of(rig, asking("w")))
    await until(lambda: len(rig.line) > 0)
    refused = (await events_of(rig, asking("x")))[-1]
    assert isinstance(refused, Failed)
    assert refused.error.status in (429, 503)
    assert refused.error.retry_after_s is not None
    await asyncio.gather(*running, waiting)
    await rig.close()


async def test_without_a_replica_the_answer_is_503(rig: DispatchRig) -> None:
    failed = (await events_of(rig, asking()))[-1]
    assert isinstance(failed, Failed)
    assert failed.error.status == 503
    assert failed.error.retry_after_s is not None


class Paused:
    """A Backend that waits to be told before its first token and after it."""

    info = ReplicaInfo("fake", 512, 8, 512, 8192, 16)
    load = Load()

    def __init__(self) -> None:
        self.n_asked = 0
        self.begin = asyncio.Event()
        self.go_on = asyncio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        self.n_asked += 1
        yield Started(300, 0, 0.0)
        await self.begin.wait()
        yield Delta("a", (97,))
        await self.go_on.wait()
        yield Finished("length", Usage(300, 0, 1))

    async def close(self) -> None:
        self.go_on.set()


async def test_a_first_token_lets_the_next_prompt_in(rig: DispatchRig) -> None:
    """A replica has room for a second's prompts; those whose prompt is computed take none of it, long as their answers may last."""
    paused = Paused()
    rig.add("a", paused)  # type: ignore[arg-type]
    requests = [Request(id=str(i), prompt=TokenPrompt(tuple(range(i, i + 300)))) for i in range(7)]
    answers = [asyncio.ensure_future(events_of(rig, request)) for request in requests]
    await until(lambda: paused.n_asked == 4)
    assert len(rig.line) == 3
    paused.begin.set()
    await until(lambda: paused.n_asked == 7)
    assert not any(answer.done() for answer in answers)
    paused.go_on.set()
    assert all(isinstance(events[-1], Finished) for events in await asyncio.gather(*answers))
    assert rig.is_at_rest()


async def test_a_version_that_rests_is_refused_even_while_a_replica_is_on_its_way(rig: DispatchRig) -> None:
    rig.add("a", Mortal())
    now = rig.clock.now()
    for _ in range(50):
        if (trial := rig.router.version.ask(now)) is not None:
            trial.close(Outcome.FAULT, now)
    rig.dispatch.turnstile.expecting = True
    events = await events_of(rig, asking())
    assert [type(event) for event in events] == [Failed]
    assert events[0].error.code == "circuit_open"  # type: ignore[union-attr]
    assert (events[0].error.retry_after_s or 0) > 1  # type: ignore[union-attr]
