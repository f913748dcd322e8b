"""Admin: every change that somebody asks for, noted as an event with who asked and what came of it; and the events so far."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Protocol

from camshaft.errors import CamshaftError, DeadlineExceeded, Unavailable
from camshaft.gateway.control import Control, Done
from camshaft.gateway.events import EventLog, Happening

CHANGE_S = 900.0  # longest time for a change: a restart waits for a replica to load
SHOWN_CHANGES = 20  # of a change, in its event


class Past(Protocol):
    """Where events of longer ago are; `state.Store` is one."""

    async def events(self, after: float, before: float, limit: int) -> list[Happening]: ...


class Admin:
    """Changes are asked for here whoever asks: the admin API, or a signal."""

    def __init__(self, control: Control, events: EventLog, past: Past) -> None:
        self.control = control
        self.log = events
        self._past = past

    async def scale(self, by: str, version: str, n: int) -> Done:
        return await self._change("scale", version, by, self.control.scale(version, n))

    async def drain(self, by: str, replica: str) -> Done:
        return await self._change("drain", replica, by, self.control.drain(replica))

    async def restart(self, by: str, replica: str) -> Done:
        return await self._change("restart", replica, by, self.control.restart(replica))

    async def weights(self, by: str, model: str, weights: Mapping[str, int]) -> Done:
        return await self._change("weights", model, by, self.control.weights(model, weights))

    async def reload(self, by: str, *, force: bool = False) -> Done:
        return await self._change("reload", "file", by, self.control.reload(force=force))

    async def rollback(self, by: str, revision: int | None = None) -> Done:
        return await self._change("rollback", "file", by, self.control.rollback(revision))

    async def _change(self, what: str, subject: str, by: str, work: Awaitable[Done]) -> Done:
        """Raises what the work raises. A refusal is an event too: that somebody tried, and why it could not be."""
        try:
            async with asyncio.timeout(CHANGE_S):
                done = await work
        except TimeoutError:
            late = DeadlineExceeded(f"{what} of {subject} was not done within {CHANGE_S:g} s; see the events for what is under way")
            self._refused(what, subject, by, late)
            raise late from None
        except CamshaftError as error:
            self._refused(what, subject, by, error)
            raise
        shown = [*done.changes[:SHOWN_CHANGES]] + (
            [f"and {len(done.changes) - SHOWN_CHANGES} more"] if done.changes[SHOWN_CHANGES:] else []
        )
        text = "; ".join(shown) or "nothing was different"
        self.log.note(Happening(f"admin.{what}", subject, text, {"by": by, **done.evidence}))
        return done

    def _refused(self, what: str, subject: str, by: str, error: CamshaftError) -> None:
        self.log.note(Happening(f"admin.{what}_refused", subject, error.message, {"by": by, "code": error.code}))

    async def events(self, after: float, before: float, limit: int) -> tuple[list[Happening], bool]:
        """Those between the two moments, oldest first, the latest `limit` of them; and whether none of them may be missing."""
        recent = [h for h in self.log.recent(after) if h.at < before]
        if len(recent) >= limit:
            return recent[len(recent) - limit :], True
        known_from = self.log.known_from
        try:
            older = await self._past.events(after, min(before, known_from), limit - len(recent))
        except Unavailable:
            return recent, False
        return [*older, *recent], True
