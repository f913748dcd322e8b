"""A fleet that is only talked about: what the admin API and `camshaft ctl` are tested over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from camshaft.errors import BadRequest, CamshaftError
from camshaft.gateway.control import Done, FleetStatus, ModelStatus, ReplicaStatus, Revision, TenantStatus, UnknownName, VersionStatus
from camshaft.gateway.events import Happening


class FakeFleet:
    """Implements control.Control. `asked` is what it was asked to do; `fails` is raised instead, where it is set."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []
        self.fails: CamshaftError | None = None
        self.hangs = asyncio.Event()
        self.hangs.set()

    async def status(self) -> FleetStatus:
        replica = ReplicaStatus(
            "small/v1-1", "ready", 3.0, n_restarts=1, running=2, tokens_in_flight=300, tokens_per_s=1234.5, kv_usage=0.25
        )
        lost = ReplicaStatus("small/v1-2", "gone", 1.0, detail="killed by signal 9", breaker="open")
        v1 = VersionStatus("v1", 90, 2, 50, 1, (replica, lost), queued=3, queued_tokens=99, oldest_s=0.5, engine="camshaft", source="tiny")
        v2 = VersionStatus(
            "v2", 10, 1, 10, 1, (ReplicaStatus("small/v2-1", "starting", 0.5),), engine="openai", source="http://127.0.0.1:1"
        )
        model = ModelStatus("small", (v1, v2), aliases=("s",), fallbacks=("other",))
        tenant = TenantStatus("ann", running=1, queued=2, requests_left=10.0, tokens_left=-1.0)
        return FleetStatus("/etc/camshaft.toml", 3, 60.0, (model,), (tenant,), address="http://127.0.0.1:8000", restart_for=("port",))

    async def revisions(self) -> tuple[Revision, ...]:
        return (
            Revision(1, 1_700_000_000.0, "start"),
            Revision(2, 1_700_000_100.0, "ann", bad=True),
            Revision(3, 1_700_000_200.0, "ann", current=True),
        )

    async def scale(self, version: str, n: int) -> Done:
        if version != "small/v1":
            raise UnknownName(f"there is no version {version}; there are small/v1")
        return await self._do("scale", version, n)

    async def drain(self, replica: str) -> Done:
        return await self._do("drain", replica)

    async def restart(self, replica: str) -> Done:
        return await self._do("restart", replica)

    async def weights(self, model: str, weights: Mapping[str, int]) -> Done:
        if not any(weights.values()):
            raise BadRequest("all weights are 0")
        return await self._do("weights", model, dict(weights))

    async def reload(self, *, force: bool = False) -> Done:
        return await self._do("reload", force)

    async def rollback(self, revision: int | None = None) -> Done:
        return await self._do("rollback", revision)

    async def _do(self, *what: object) -> Done:
        await self.hangs.wait()
        if self.fails is not None:
            raise self.fails
        self.asked.append(what)
        return Done((f"{what[0]} done",), {"n": len(self.asked)})


class FakePast:
    """Implements admin.Past: what was noted, as if all of it lay on disk."""

    def __init__(self, *happenings: Happening) -> None:
        self.kept = [*happenings]
        self.broken: CamshaftError | None = None

    async def events(self, after: float, before: float, limit: int) -> list[Happening]:
        if self.broken is not None:
            raise self.broken
        return [h for h in self.kept if after < h.at < before][-limit:] if limit else []
