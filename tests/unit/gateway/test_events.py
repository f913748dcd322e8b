"""Happenings: named by their time, bounded, and no follower holds up another."""

from __future__ import annotations

import asyncio
import logging

import pytest

from camshaft.gateway.events import (
    MAX_EVIDENCE,
    MAX_FOLLOWERS,
    MAX_RECENT,
    MAX_TEXT_CHARS,
    MAX_WAITING,
    EventLog,
    Follower,
    Happening,
    logged,
)


def happening(text: str = "") -> Happening:
    return Happening("replica.ready", "m/v1/0", text)


async def take(follower: Follower, n: int) -> list[Happening]:
    async with asyncio.timeout(10):
        return [await follower.next() for _ in range(n)]


def test_each_is_later_than_the_one_before_though_the_clock_stands_or_goes_back() -> None:
    times = iter([100.0, 100.0, 50.0, 200.0])
    seen: list[Happening] = []
    log = EventLog(seen.append, wall=lambda: next(times))
    for _ in range(4):
        log.note(happening())
    at = [h.at for h in seen]
    assert at == sorted(set(at))
    assert (at[0], at[-1]) == (100.0, 200.0)
    assert log.recent(at[1]) == seen[2:]


def test_another_run_comes_after_what_the_last_one_noted() -> None:
    log = EventLog(after=500.0, wall=lambda: 100.0)
    log.note(happening())
    assert log.recent()[0].at > 500.0


def test_text_evidence_and_memory_are_bounded() -> None:
    log = EventLog()
    log.note(Happening("a.b", "s", "x" * 5_000, {str(i): i for i in range(500)}))
    (noted,) = log.recent()
    assert (len(noted.text), len(noted.evidence)) == (MAX_TEXT_CHARS, MAX_EVIDENCE)
    assert log.known_from == noted.at
    for _ in range(MAX_RECENT + 10):
        log.note(happening())
    assert len(log.recent()) == MAX_RECENT
    assert log.known_from > noted.at


async def test_followers_hear_what_happens_from_now_on() -> None:
    log = EventLog()
    log.note(happening("before"))
    with log.following() as follower:
        assert follower is not None
        log.note(happening("one"))
        log.note(happening("two"))
        assert [h.text for h in await take(follower, 2)] == ["one", "two"]
        waiting = asyncio.ensure_future(take(follower, 1))
        await asyncio.sleep(0)
        log.note(happening("three"))
        assert [h.text for h in await waiting] == ["three"]


async def test_a_slow_follower_loses_the_oldest_and_is_told_how_many() -> None:
    log = EventLog()
    with log.following() as slow:
        assert slow is not None
        for i in range(MAX_WAITING + 7):
            log.note(happening(str(i)))
        assert slow.n_missed == 7
        assert [h.text for h in await take(slow, 2)] == ["7", "8"]


def test_followers_are_bounded_and_leave() -> None:
    log = EventLog()
    with log.following():
        for _ in range(3):  # a place that is left is free again
            inner = [log.following() for _ in range(MAX_FOLLOWERS - 1)]
            assert all(f.__enter__() is not None for f in inner)
            with log.following() as too_many:
                assert too_many is None
            for f in inner:
                f.__exit__(None, None, None)


def test_each_is_one_line_of_the_log_and_trouble_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "camshaft.gateway.events"):
        log = EventLog(logged)
        log.note(Happening("replica.ready", "m/v1-1", "warm", {"was": "warming"}))
        log.note(Happening("breaker.open", "m/v1-1", "was closed", {"faults": 3}))
        log.note(Happening("admin.scale_refused", "x", "there is no x\nforged"))
        log.note(Happening("state.failed", "state", "the store logs this itself"))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", "event=replica.ready subject=m/v1-1 text=warm was=warming"),
        ("WARNING", 'event=breaker.open subject=m/v1-1 text="was closed" faults=3'),
        ("WARNING", 'event=admin.scale_refused subject=x text="there is no x\\nforged"'),
    ]
