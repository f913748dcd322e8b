"""Streams: the answers that are on their way from a worker to their readers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from camshaft.engine.mailbox import Mailbox, Post
from camshaft.errors import CamshaftError, DeadlineExceeded
from camshaft.types import Event, Failed, Finished

_GRACE_S = 0.5  # a worker sees to deadlines by itself; we do only where it does not


class Stream:
    """One answer. What its reader has not read is merged and never more than the request may generate; no other stream waits for it."""

    def __init__(self, number: int, post: Post) -> None:
        self.number = number
        self.mailbox = Mailbox(post)
        self.timer: asyncio.TimerHandle | None = None

    async def next(self) -> Event:
        return self.mailbox.take() if self.mailbox else await self.mailbox.get()


class Streams:
    """Those that are not over yet. Event loop thread only."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._post = Post(self._loop)
        self._open: dict[int, Stream] = {}
        self._newest = 0

    def __len__(self) -> int:
        return len(self._open)

    @property
    def next(self) -> int:
        """The number of the stream that is opened next."""
        return self._newest + 1

    def open(self, longest_s: float) -> Stream:
        """A stream with a number that was never used before. It ends after `longest_s`, whatever the other end does."""
        self._newest += 1
        stream = Stream(self._newest, self._post)
        self._open[stream.number] = stream
        late = DeadlineExceeded(f"the deadline passed {_GRACE_S:g} s ago and the replica did not say so; allow more time or ask for less")
        stream.timer = self._loop.call_later(longest_s + _GRACE_S, self._end, stream, late)
        return stream

    def heard(self, number: int, events: Sequence[Event]) -> None:
        """What comes for a stream that nobody reads any more is dropped."""
        stream = self._open.get(number)
        if stream is None or not events:
            return
        for event in events:
            stream.mailbox.put(event)
        if isinstance(events[-1], (Finished, Failed)):
            self.close(stream)
        stream.mailbox.wake()

    def close(self, stream: Stream) -> bool:
        """Forget it. False where it was over already."""
        if stream.timer is not None:
            stream.timer.cancel()
        return self._open.pop(stream.number, None) is not None

    def end_all(self, error: CamshaftError) -> None:
        """Each gets this as its terminal event, after what has come for it."""
        for stream in list(self._open.values()):
            self._end(stream, error)

    def _end(self, stream: Stream, error: CamshaftError) -> None:
        self.heard(stream.number, (Failed(error.info()),))
