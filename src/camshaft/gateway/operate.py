"""Operator: what an administrator sees of a fleet and does to it. Each change is told as an event, by whoever asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from camshaft.cluster.replica import Replica
from camshaft.errors import BadRequest, ConfigError
from camshaft.gateway.control import Done, FleetStatus, ModelStatus, ReplicaStatus, Revision, TenantStatus, VersionStatus, unknown
from camshaft.gateway.describe import diff, restart_for, runs
from camshaft.gateway.file import read_text
from camshaft.gateway.fleet import Fleet
from camshaft.gateway.history import History
from camshaft.gateway.limit import Limiter
from camshaft.gateway.model import Model
from camshaft.gateway.route import Job
from camshaft.gateway.spec import FleetSpec
from camshaft.gateway.table import FileRejected
from camshaft.gateway.version import Version
from camshaft.types import Clock

MAX_TENANTS_SHOWN = 1_000


class Desk(NamedTuple):
    """What an operator works with beside the fleet."""

    path: Path  # of the file
    parse: Callable[[str], FleetSpec]  # a text of it, under what the command line says; raises FileRejected
    history: History
    limiter: Limiter
    clock: Clock
    applied: Callable[[FleetSpec], None]  # keys, limits and whatever else a new file changes outside the fleet
    trouble: Callable[[], str]  # what is wrong with the state on disk


class Operator:
    """Implements control.Control."""

    def __init__(self, fleet: Fleet, desk: Desk) -> None:
        self.address = ""  # of the public port, once it listens
        self._fleet = fleet
        self._desk = desk
        self._began_at = desk.clock.now()
        self._started_with = fleet.spec

    async def status(self) -> FleetStatus:
        current = self._desk.history.current
        now = self._desk.clock.now()
        return FleetStatus(
            file=str(self._desk.path),
            revision=current.revision if current is not None else 0,
            up_s=round(now - self._began_at, 1),
            models=tuple(self._model(model, now) for model in self._fleet.models.values()),
            tenants=self._tenants(),
            address=self.address,
            state=self._desk.trouble(),
            restart_for=restart_for(self._started_with, self._fleet.spec),
        )

    async def revisions(self) -> tuple[Revision, ...]:
        entries = self._desk.history.entries
        return tuple(Revision(e.revision, e.at, e.by, e.bad, e is entries[-1]) for e in entries)

    async def scale(self, version: str, n: int) -> Done:
        found = self._version(version)
        before = found.wanted
        found.scale(n)
        return Done((f"{version}: {before} -> {n} replicas",) if n != before else (), {"before": before, "after": n})

    async def drain(self, replica: str) -> Done:
        version, found = self._replica(replica)
        n = found.n_streams
        self._fleet.spawn(version.pool.drain(replica))
        return Done((f"{replica} drains; {n} streams may end, and nothing new comes",), {"streams": n})

    async def restart(self, replica: str) -> Done:
        version, found = self._replica(replica)
        was = found.state
        self._fleet.spawn(version.restart(replica))
        how = "a new one takes over once it is ready" if was == "ready" else "it starts anew"
        return Done((f"{replica} is restarted: {how}",), {"was": was})

    async def weights(self, model: str, weights: Mapping[str, int]) -> Done:
        found = self._fleet.models.get(model)
        if found is None:
            raise unknown("model", model, self._fleet.models, "model")
        for name in weights:
            if name not in found.versions:
                raise unknown("version", name, found.versions, "weights")
        before = dict(found.weights)
        try:
            moved = found.reweigh({**before, **weights})
        except ConfigError as error:
            raise BadRequest(error.message, param="weights") from None
        changes = tuple(f"{model}/{name}: weight {before[name]} -> {weight}" for name, weight in weights.items() if before[name] != weight)
        return Done(changes, {"buckets_moved": moved, **{f"weight_{name}": weight for name, weight in found.weights.items()}})

    async def reload(self, *, force: bool = False) -> Done:
        path = self._desk.path
        if path.exists() and not path.is_file():
            raise FileRejected(path.name, ["is no regular file, and reading it could take for ever"])
        try:
            text = read_text(path)
        except ConfigError as error:
            raise FileRejected(error.message) from None
        spec = self._desk.parse(text)
        if not force and self._desk.history.is_bad(text):
            raise FileRejected(path.name, ["is the very file that was rolled back; change it, or insist with --force"])
        changes = await self._become(spec)
        accepted = self._desk.history.accept(text, "reload")
        return Done(changes, {"revision": accepted.revision})

    async def rollback(self, revision: int | None = None) -> Done:
        target = self._desk.history.target(revision)
        # Parsed anew: what it names may be gone by now, and then nothing changes.
        changes = await self._become(self._desk.parse(target.text))
        accepted = self._desk.history.rolled_back(target, "rollback")
        return Done(changes, {"revision": accepted.revision, "to": target.revision})

    # ----------------------------------------------------------------------------------------------------------- inside

    async def _become(self, spec: FleetSpec) -> tuple[str, ...]:
        changes = tuple(diff(self._fleet.spec, spec))
        await self._fleet.apply(spec)
        self._desk.applied(spec)
        return changes

    def _version(self, id: str) -> Version:
        known = {v.spec.id: v for model in self._fleet.models.values() for v in model.versions.values()}
        found = known.get(id)
        if found is None:
            raise unknown("version", id, known, "version")
        return found

    def _replica(self, name: str) -> tuple[Version, Replica]:
        known = {replica.name: (version, replica) for version in self._fleet.versions for replica in version.pool.replicas}
        if name not in known:
            raise unknown("replica", name, known, "replica")
        return known[name]

    def _model(self, model: Model, now: float) -> ModelStatus:
        config = model.spec.config
        versions = tuple(_version_status(v, model.weights.get(v.spec.name, 0), now) for v in model.versions.values())
        return ModelStatus(model.spec.name, versions, config.aliases, config.fallbacks)

    def _tenants(self) -> tuple[TenantStatus, ...]:
        inside: dict[str, tuple[int, int]] = {}
        for version in self._fleet.versions:
            for name, (queued, running) in version.line.by_tenant().items():
                before = inside.get(name, (0, 0))
                inside[name] = (before[0] + queued, before[1] + running)
        limiter, now = self._desk.limiter, self._desk.clock.now()
        # Who is active goes before who only stands in the file, where there is no room for all. "" is everybody, where nobody has a key.
        filed = [tenant.name for tenant in self._fleet.spec.tenants] or [""]
        shown = []
        for name in sorted([*dict.fromkeys([*inside, *filed])][:MAX_TENANTS_SHOWN]):
            (queued, running), (requests, tokens) = inside.get(name, (0, 0)), limiter.left(name, now)
            shown.append(TenantStatus(name, running, queued, requests_left=requests, tokens_left=tokens))
        return tuple(shown)


def _version_status(version: Version, weight: int, now: float) -> VersionStatus:
    config = version.spec.config
    seen = {candidate.name: candidate for candidate in version.router.candidates(Job(), now)}
    replicas = []
    for replica in version.pool.replicas:
        candidate = seen.get(replica.name)
        load = replica.backend.load if replica.backend is not None else None
        replicas.append(
            ReplicaStatus(
                name=replica.name,
                state=replica.state,
                since_s=round(now - replica.since, 1),
                n_restarts=replica.n_restarts,
                running=replica.n_streams,
                waiting=-1 if load is None else load.waiting,
                tokens_in_flight=0 if candidate is None else round(candidate.n_waiting) + candidate.n_decode,
                tokens_per_s=-1.0 if candidate is None else round(candidate.decode_per_s, 1),
                kv_usage=-1.0 if load is None else load.kv_usage,
                utilisation=-1.0 if load is None else load.utilisation,
                breaker=version.router.breaker_state(replica.name, now),
                detail="" if replica.state == "ready" else replica.reason,
            )
        )
    return VersionStatus(
        name=version.spec.name,
        weight=weight,
        wanted=version.wanted,
        weight_in_file=config.weight,
        wanted_in_file=config.replicas,
        replicas=tuple(replicas),
        queued=len(version.line),
        queued_tokens=version.line.n_tokens,
        oldest_s=round(version.line.oldest_s(now), 1),
        breaker=version.router.version.state(now),
        engine=config.engine,
        source=runs(version.spec),
    )
