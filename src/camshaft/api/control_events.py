"""The events of a fleet: those of the past at once, those to come as they happen."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.api.query import number, query
from camshaft.api.sse import struct_event
from camshaft.errors import DeadlineExceeded, Overloaded
from camshaft.gateway.admin import Admin
from camshaft.gateway.events import Follower, Happening

MAX_EVENTS = 10_000
USUAL = 100
LATEST = 1e12  # seconds since the epoch
FOLLOW_S = 3_600.0  # then the follower asks again from where it was
HEARTBEAT_S = 15.0  # so that a dead connection is found
_HEARTBEAT = b": nothing new\n\n"


class Events(Struct, frozen=True):
    """Oldest first. Not `complete`: those of longer ago could not be read."""

    events: list[Happening]
    complete: bool


class Missed(Struct, frozen=True):
    """In a stream, in the place of events that the follower was too slow for."""

    missed: int


async def events(admin: Admin, edge: Edge, call: Call) -> None:
    """`since` and `until` in seconds since the epoch, `limit`, and `follow=1` for a stream of server-sent events."""
    asked = query(call, ("since", "until", "limit", "follow"))
    since, until = number(asked, "since", 0.0, LATEST), number(asked, "until", LATEST, LATEST)
    limit = int(number(asked, "limit", USUAL, MAX_EVENTS))
    if number(asked, "follow", 0, 1):
        await _follow(admin, call, since, limit)
        return
    found, complete = await admin.events(since, until, limit)
    await call.reply(200, msgspec.json.encode(Events(found, complete)))


async def _follow(admin: Admin, call: Call, since: float, limit: int) -> None:
    await call.body(0)
    with admin.log.following() as follower:
        if follower is None:
            raise Overloaded("too many follow the events already", retry_after_s=10.0)
        past, _ = await admin.events(since, LATEST, limit) if limit else ([], True)
        await call.open_stream()
        try:
            await call.while_here(_send(call, past, follower), FOLLOW_S)
        except DeadlineExceeded:
            await call.close_stream(b"")


async def _send(call: Call, past: list[Happening], follower: Follower) -> None:
    """What happened while the past was read is in both; it is sent once."""
    last = past[-1].at if past else 0.0
    for happening in past:
        await call.write(struct_event(happening))
    n_missed = 0
    while True:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                happening = await follower.next()
        except TimeoutError:
            await call.write(_HEARTBEAT)
            continue
        if follower.n_missed > n_missed:
            await call.write(struct_event(Missed(follower.n_missed - n_missed)))
            n_missed = follower.n_missed
        if happening.at > last:
            await call.write(struct_event(happening))
