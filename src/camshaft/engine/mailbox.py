"""Mailbox: one stream's events on their way from the engine thread to an event loop. Post: all mailboxes of one event loop."""

from __future__ import annotations

import asyncio
from collections import deque

from camshaft.types import Delta, Event


class Post:
    """Wakes an event loop once per engine step, however many of its streams have something new."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._due: deque[Mailbox] = deque()  # append and popleft are atomic
        self._called = False  # whether a wake-up is on its way

    def send(self, mailbox: Mailbox) -> bool:
        """Wake the reader of `mailbox`. Engine thread. False: the event loop is gone, and nobody will ever read."""
        # In this order, and `_deliver` in the opposite one: whoever comes too late for a wake-up that is on its way makes another.
        self._due.append(mailbox)
        if self._called:
            return True
        self._called = True
        try:
            self.loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _deliver(self) -> None:
        self._called = False
        due = self._due
        while due:
            due.popleft().wake()


class Mailbox:
    """What a slow reader has not read yet is merged when it reads, so that it gets fewer and larger events; the engine never waits.

    Holds at most what its request may generate. Written by the engine thread, read by one task of the post's event loop.
    """

    def __init__(self, post: Post) -> None:
        self._post = post
        self._events: deque[Event] = deque()  # append and popleft are atomic
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        self._events.append(event)

    def send(self) -> bool:
        return self._post.send(self)

    async def get(self) -> Event:
        """The next event; neighbouring deltas as one."""
        while not self._events:
            self._waiter = self._post.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.take()

    def take(self) -> Event:
        """The same where there is one."""
        events = self._events
        event = events.popleft()
        if not isinstance(event, Delta) or not events or not isinstance(events[0], Delta):
            return event
        deltas = [event]
        while events and isinstance(events[0], Delta):
            following = events.popleft()
            assert isinstance(following, Delta)
            deltas.append(following)
        return Delta("".join(d.text for d in deltas), tuple(i for d in deltas for i in d.ids), tuple(p for d in deltas for p in d.logprobs))

    def __bool__(self) -> bool:
        """Whether there is an event to take."""
        return bool(self._events)

    def wake(self) -> None:
        """Event loop thread only."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
