"""Pool: the replicas of one version."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from camshaft.cluster.backend import Backend, State
from camshaft.cluster.replica import Replica, Seat
from camshaft.errors import BadRequest, Unavailable

# Who goes first when there are too many: what serves nobody yet, before what does.
_FIRST_TO_GO: tuple[State, ...] = ("gone", "starting", "warming", "ready")


def plan(states: Mapping[str, State], n: int) -> tuple[int, list[str]]:
    """How many to start, and whom to end, so that there are `n`. `states` is in order of age; those that leave already are not in it.

    One that was given up keeps its place, or a crash loop would go on under another name.
    """
    surplus = len(states) - n
    if surplus <= 0:
        return -surplus, []
    newest_first = list(states)[::-1]
    order = sorted(newest_first, key=lambda name: _FIRST_TO_GO.index(states[name]))
    return 0, order[:surplus]


class Pool:
    """Event loop thread only. Owner of its replicas."""

    def __init__(self, name: str, seat: Seat) -> None:
        self.name = name
        self._seat = seat
        self._replicas: dict[str, Replica] = {}
        self._leaving: set[str] = set()  # they end, or are being replaced
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_made = 0
        self._closed = False

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Oldest first; those that drain included."""
        return tuple(self._replicas.values())

    def backend(self, name: str) -> Backend | None:
        """There while the replica is ready or draining."""
        replica = self._replicas.get(name)
        return None if replica is None else replica.backend

    def scale(self, n: int) -> None:
        """Decide who starts and who goes; both take their time. Raises BadRequest."""
        if n < 0:
            raise BadRequest(f"{self.name} cannot have {n} replicas; 0 is the fewest", param="replicas")
        if self._closed:
            raise Unavailable(f"{self.name} is closed")
        states = {r.name: r.state for r in self._replicas.values() if r.name not in self._leaving and r.state != "draining"}
        n_start, surplus = plan(states, n)
        for _ in range(n_start):
            self._add()
        for name in surplus:
            self._spawn(self._end(self._replicas[name], f"scaled to {n}"))

    async def drain(self, name: str) -> None:
        """Let its streams end, then keep its place empty until `restart`, or a smaller scale."""
        await self._get(name).drain("drained by hand")

    async def restart(self, name: str) -> Replica:
        """A new one in its place, ready before the old one drains. Returns the one that serves then.

        Raises Unavailable where the new one does not come up: then the old one goes on as if nothing had been.
        """
        old = self._get(name)
        if name in self._leaving:
            raise Unavailable(f"{name} is being replaced or ended already")
        if old.state != "ready":
            await old.restart("restarted by hand")
            return old
        self._leaving.add(name)
        new = self._add()
        done = False
        try:
            done = await new.settled() == "ready"
        finally:
            if not done:
                self._leaving.discard(name)
                reason = new.reason
                await self._end(new, "it was to replace another and did not come up")
        if not done:
            raise Unavailable(f"{new.name} did not come up ({reason}); {name} goes on")
        await self._end(old, f"replaced by {new.name}")
        return new

    async def close(self) -> None:
        """End everything. Idempotent."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()))
        self._replicas.clear()

    def _get(self, name: str) -> Replica:
        replica = self._replicas.get(name)
        if replica is None:
            known = ", ".join(self._replicas) or "none"
            raise BadRequest(f"{self.name} has no replica {name!r}; it has {known}", param="replica")
        return replica

    def _add(self) -> Replica:
        """Names are never used twice: what was learned of one must not be believed of another."""
        self._n_made += 1
        replica = Replica(f"{self.name}-{self._n_made}", self._seat)
        self._replicas[replica.name] = replica
        replica.start()
        return replica

    async def _end(self, replica: Replica, reason: str) -> None:
        self._leaving.add(replica.name)
        await replica.drain(reason)
        self._replicas.pop(replica.name, None)
        self._leaving.discard(replica.name)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
