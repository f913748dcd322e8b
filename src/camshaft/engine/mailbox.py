"""Mailbox: one stream's events on their way from the engine thread to an event loop. Post: all mailboxes of one event loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque

from camshaft.types import Delta, Event


class Post:
    """Wakes an event loop once per engine step, however many of its streams have something new."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._due: set[Mailbox] = set()
        self._called = False  # whether a wake-up is on its way

    def send(self, mailbox: Mailbox) -> bool:
        """Wake the reader of `mailbox`. Engine thread. False: the event loop is gone, and nobody will ever read."""
        with self._lock:
            self._due.add(mailbox)
            if self._called:
                return True
            self._called = True
        try:
            self._loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def _deliver(self) -> None:
        with self._lock:
            due, self._due = self._due, set()
            self._called = False
        for mailbox in due:
            mailbox.wake()


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
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        event = self._events.popleft()
        if not isinstance(event, Delta) or not self._events or not isinstance(self._events[0], Delta):
            return event
        deltas = [event]
        while self._events and isinstance(self._events[0], Delta):
            following = self._events.popleft()
            assert isinstance(following, Delta)
            deltas.append(following)
        return Delta("".join(d.text for d in deltas), tuple(i for d in deltas for i in d.ids), tuple(p for d in deltas for p in d.logprobs))

    def wake(self) -> None:
        """Event loop thread only."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
