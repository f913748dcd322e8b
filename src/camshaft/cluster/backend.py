"""Backend: something loaded that answers requests. Launcher: what brings one up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

from camshaft.types import Event, Health, Load, ReplicaInfo, Request

State = Literal["starting", "warming", "ready", "draining", "gone"]


class Backend(Protocol):
    """An Upstream (types.py) that is loaded and warm, and may die. Owns whatever it runs in: `close` leaves no process and no socket."""

    @property
    def info(self) -> ReplicaInfo: ...

    @property
    def load(self) -> Load:
        """As last reported."""
        ...

    def stream(self, request: Request) -> AsyncIterator[Event]:
        """As Upstream.stream. A backend that dies ends its streams with Failed(replica_lost), at once."""
        ...

    async def health(self) -> Health: ...

    async def lost(self) -> str:
        """Returns when it died, hung or went silent, with why. May be awaited by several; never returns for one that was closed."""
        ...

    async def metrics(self) -> bytes:
        """Its own numbers in Prometheus' text format; empty where it has none. Bounded in time and size."""
        ...

    async def close(self) -> None:
        """End what runs, then everything that it is made of. Idempotent; bounded in time."""
        ...


class Launcher(Protocol):
    """One way to get a backend: a process of ours, a command, an outside address."""

    async def launch(self, name: str, told: Callable[[State], None]) -> Backend:
        """A backend that is loaded and warmed by a real prefill and decode. `told` hears "warming" once it is loaded.

        Raises Unavailable, with the last of what it said, when it dies or is late. Leaves nothing behind when it fails or is cancelled.
        """
        ...
