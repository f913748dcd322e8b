"""Control: what an operator can see of a running fleet and do to it. The admin API talks to this; the fleet is one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from camshaft.config import suggest
from camshaft.errors import CamshaftError

MAX_SHOWN = 8  # names in one error


class UnknownName(CamshaftError):
    """No model, version, replica or revision is called that. Says which there are."""

    status = 404
    code = "unknown_name"


def unknown(what: str, name: str, known: Iterable[str], param: str) -> UnknownName:
    """For a `name` that is no `what`, such as a replica: with those that it may be a part of, else the nearest, else all."""
    names = list(known)
    parts = [k for k in names if k.startswith(f"{name}/") or k.endswith(f"/{name}")]
    if parts:
        hint = f"; did you mean {_some(parts)}?"
    else:
        hint = suggest(name, names) or (f"; there {'are' if names[1:] else 'is'} {_some(names)}" if names else "")
    return UnknownName(f"there is no {what} {name!r}{hint}", param=param)


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:MAX_SHOWN])) + (", ..." if names[MAX_SHOWN:] else "")


class ReplicaStatus(Struct, frozen=True):
    """-1 where it is not known."""

    name: str
    state: str  # starting, warming, ready, draining or gone
    since_s: float  # seconds in this state
    n_restarts: int = 0
    running: int = 0  # our own count of its streams
    waiting: int = -1  # as it reports
    tokens_in_flight: int = 0  # to prefill and in decode, by our own count
    tokens_per_s: float = -1.0  # measured
    kv_usage: float = -1.0
    utilisation: float = -1.0
    breaker: str = "closed"  # closed, open or half_open
    detail: str = ""  # why it is not ready


class VersionStatus(Struct, frozen=True):
    name: str
    weight: int
    wanted: int  # replicas
    weight_in_file: int = -1  # where somebody set another by hand, this is what the file says
    wanted_in_file: int = -1
    replicas: tuple[ReplicaStatus, ...] = ()
    queued: int = 0  # requests
    queued_tokens: int = 0
    oldest_s: float = 0.0  # how long the first of them has waited
    breaker: str = "closed"
    engine: str = ""
    source: str = ""  # what it runs: a model, a command, an address


class ModelStatus(Struct, frozen=True):
    name: str
    versions: tuple[VersionStatus, ...]
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()


class TenantStatus(Struct, frozen=True):
    """-1 where there is no limit."""

    name: str
    running: int = 0
    queued: int = 0
    requests_left: float = -1.0  # in this minute
    tokens_left: float = -1.0


class FleetStatus(Struct, frozen=True):
    """One moment of the fleet."""

    file: str
    revision: int  # of the accepted file
    up_s: float
    models: tuple[ModelStatus, ...]
    tenants: tuple[TenantStatus, ...] = ()  # those of the file, and who has requests inside; bounded
    address: str = ""  # of the public port
    state: str = ""  # what is wrong with the state on disk; "" when nothing is
    restart_for: tuple[str, ...] = ()  # settings of the accepted file that a restart is needed for


class Revision(Struct, frozen=True):
    """A file that was accepted."""

    revision: int
    at: float  # seconds since the epoch
    by: str
    bad: bool = False  # rolled back
    current: bool = False


class Done(Struct, frozen=True):
    """A change that was made. `changes` says it in words, a line each; none where nothing was different."""

    changes: tuple[str, ...]
    evidence: dict[str, str | int | float | bool | None] = {}


class Control(Protocol):
    """Each change is whole or not at all, and loses no request. Names that mean nothing raise UnknownName; what cannot be, BadRequest."""

    async def status(self) -> FleetStatus: ...

    async def revisions(self) -> tuple[Revision, ...]:
        """Accepted files that a rollback can reach, oldest first, the one in force last."""
        ...

    async def scale(self, version: str, n: int) -> Done:
        """`n` replicas for MODEL/VERSION. Those that go are drained first."""
        ...

    async def drain(self, replica: str) -> Done:
        """It takes nothing new, finishes what it has, within its bound, and stays away until it is restarted."""
        ...

    async def restart(self, replica: str) -> Done:
        """Drained, ended, started again. Also what ends a crash loop's rest."""
        ...

    async def weights(self, model: str, weights: Mapping[str, int]) -> Done:
        """Shares of the versions named; others keep theirs."""
        ...

    async def reload(self, *, force: bool = False) -> Done:
        """Read the file again. Raises FileRejected, and changes nothing, where it is bad. `force` takes one that was rolled back."""
        ...

    async def rollback(self, revision: int | None = None) -> Done:
        """Back to the accepted file before this one, or to that of `revision`. The file on disk stays as it is."""
        ...
