"""Happenings: every change of the fleet and every automatic decision, with its evidence; who notes them and who follows them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from camshaft.observe.log import Pairs

log = logging.getLogger(__name__)

MAX_TEXT_CHARS = 1_000
MAX_EVIDENCE = 64  # entries
MAX_RECENT = 1_024  # kept in memory
MAX_WAITING = 256  # for one follower; more are dropped, oldest first, and it is told how many
MAX_FOLLOWERS = 32
_GRAVE = frozenset({"breaker.open", "lease.lost", "stream.stuck", "upstream.refused"})  # those that somebody should look at

Plain = str | int | float | bool | None


class Happening(Struct, frozen=True):
    """`kind` is `what.how`, such as replica.ready; `subject` is what it happened to, such as a replica's name. Holds no secret."""

    kind: str
    subject: str
    text: str  # one sentence for a person
    evidence: dict[str, Plain] = {}  # the numbers that decided
    at: float = 0.0  # seconds since the epoch; the log fills it in, each later than the one before, so that it names the happening


Note = Callable[[Happening], None]  # how every part hands its happenings over; called on the event loop's thread


class Follower:
    """One who follows. Falls behind alone: what it does not take is dropped, and counted."""

    def __init__(self) -> None:
        self.n_missed = 0
        self._waiting: deque[Happening] = deque()
        self._more = asyncio.Event()

    def put(self, happening: Happening) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.n_missed += 1
        self._waiting.append(happening)
        self._more.set()

    async def next(self) -> Happening:
        while not self._waiting:
            self._more.clear()
            await self._more.wait()
        return self._waiting.popleft()


class EventLog:
    """Stamps happenings, keeps the last ones, and hands each to the sinks and to whoever follows. One thread."""

    def __init__(self, *sinks: Note, after: float = 0.0, wall: Callable[[], float] = time.time) -> None:
        """`after`: when the last happening was that another run noted."""
        self._sinks = sinks
        self._wall = wall
        self._last = after
        self._recent: deque[Happening] = deque(maxlen=MAX_RECENT)
        self._followers: set[Follower] = set()

    def note(self, happening: Happening) -> None:
        """Takes a moment; never fails and never waits."""
        # A clock that is set back, or two in one microsecond, must not give two of them one name.
        self._last = max(self._wall(), self._last + 1e-6)
        evidence = {_clean(key): _plain(value) for key, value in islice(happening.evidence.items(), MAX_EVIDENCE)}
        text, subject = _clean(happening.text), _clean(happening.subject)
        stamped = replace(happening, at=round(self._last, 6), text=text, subject=subject, evidence=evidence)
        self._recent.append(stamped)
        for sink in self._sinks:
            sink(stamped)
        for follower in self._followers:
            follower.put(stamped)

    def recent(self, after: float = 0.0) -> list[Happening]:
        """Those later than `after` that are still in memory, oldest first."""
        return [h for h in self._recent if h.at > after]

    @property
    def known_from(self) -> float:
        """All of this run from here on is in memory; what came before may lie on disk."""
        return self._recent[0].at if self._recent else 1e12

    @contextmanager
    def following(self) -> Iterator[Follower | None]:
        """From now on; None where too many follow already."""
        if len(self._followers) >= MAX_FOLLOWERS:
            yield None
            return
        follower = Follower()
        self._followers.add(follower)
        try:
            yield follower
        finally:
            self._followers.discard(follower)


def logged(happening: Happening) -> None:
    """A sink: the happening as a line of the log. Trouble with the state is left out: the store logs its own, with its path."""
    if happening.kind.startswith("state."):
        return
    grave = happening.kind in _GRAVE or happening.kind.endswith("_refused")
    told: dict[str, Plain] = {"event": happening.kind, "subject": happening.subject, "text": happening.text}
    log.log(logging.WARNING if grave else logging.INFO, "%s", Pairs(told | happening.evidence))


def _clean(text: str) -> str:
    """Bounded, and fit to be written whatever it holds."""
    return text[:MAX_TEXT_CHARS].encode("utf-8", "replace").decode()


def _plain(value: Plain) -> Plain:
    if isinstance(value, str):
        return _clean(value)
    # Neither JSON nor SQLite takes larger ones everywhere.
    return float(value) if isinstance(value, int) and abs(value) > 1 << 53 else value
