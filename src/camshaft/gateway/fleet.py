"""Fleet: every model, version and replica of one gateway, as its file asks for them; and the file's changes, applied while it serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, NamedTuple

from camshaft.errors import CamshaftError, Forbidden, UnknownModel
from camshaft.gateway.events import Happening
from camshaft.gateway.model import Model
from camshaft.gateway.spec import EVERYBODY, FleetSpec, ModelSpec, TenantSpec, VersionSpec
from camshaft.gateway.split import Sticky
from camshaft.gateway.version import House, Means, Version

log = logging.getLogger(__name__)

TICK_S = 1.0
_LAST_WAIT_S = 60.0  # for those who wait in the line of a version that is replaced


class Asked(NamedTuple):
    """What a caller wants, as far as it decides who answers."""

    model: str | None  # None: the default
    sticky: Sticky
    version: str = ""  # for testers


class Fleet:
    """Event loop thread only. Owner of all versions; `close` leaves no process."""

    def __init__(self, spec: FleetSpec, house: House, means: Callable[[VersionSpec], Means]) -> None:
        """`means` blocks, and is called in a thread."""
        self.spec = spec
        self.models: dict[str, Model] = {}
        self._house = house
        self._means = means
        self._tenants = _tenants(spec)
        self._tasks: set[asyncio.Task[None]] = set()
        self._leaving: set[Version] = set()
        self._coming: dict[str, Version] = {}  # by id: they take over once they are ready
        self._saved: dict[str, Any] = {}
        self._applying = asyncio.Lock()

    # ------------------------------------------------------------------------------------------------------ for callers

    def tenant(self, name: str) -> TenantSpec:
        return self._tenants.get(name, EVERYBODY)

    def model(self, name: str | None, tenant: str) -> Model:
        """By name or alias; without one, the default. Raises UnknownModel and Forbidden."""
        spec = self.spec.default_model if name is None else self.spec.model(name)
        found = self.models.get(spec.name) if spec is not None else None
        if spec is None or found is None:
            raise UnknownModel(f"the model {(name or '')[:100]!r} is not served here; see /v1/models", param="model")
        if not self.tenant(tenant).may_ask(spec):
            mine = ", ".join(model.spec.name for model in self.models_for(tenant))
            raise Forbidden(f"this key may not ask for {spec.name}; it may ask for {mine or 'none that is served'}", param="model")
        return found

    def models_for(self, tenant: str) -> list[Model]:
        """Those that it may ask for, in the file's order."""
        asks = self.tenant(tenant)
        return [model for model in self.models.values() if asks.may_ask(model.spec)]

    def fallback(self, tenant: str, passed: Collection[str]) -> str:
        """The first fallback of the first of `passed` that is not among them and that the tenant may ask for; "" for none."""
        asked = self.models.get(next(iter(passed)))
        fallbacks = asked.spec.config.fallbacks if asked is not None else ()
        asks = self.tenant(tenant)
        known = ((name, self.models.get(name)) for name in fallbacks if name not in passed)
        return next((name for name, model in known if model is not None and asks.may_ask(model.spec)), "")

    def choose(self, asked: Asked) -> Version:
        """The version that answers. Raises UnknownModel, Forbidden, BadRequest, Unavailable."""
        tenant = asked.sticky.tenant
        if asked.version and not self.tenant(tenant).config.tester:
            raise Forbidden("this key may not choose a version; leave out the header x-camshaft-version")
        return self.model(asked.model, tenant).choose(asked.sticky, asked.version)

    def share(self, tenant: str) -> float:
        """Of a full queue, relative to other tenants."""
        return self.tenant(tenant).config.weight

    @property
    def missing(self) -> tuple[str, ...]:
        """A line for each version that is to have replicas and has none that takes traffic: which one is not up, and why."""
        return tuple(why for model in self.models.values() for version in model.versions.values() if (why := version.missing))

    @property
    def versions(self) -> list[Version]:
        """Those that serve, those that are to take over, and those that leave."""
        serving = [version for model in self.models.values() for version in model.versions.values()]
        return [*serving, *self._coming.values(), *self._leaving]

    # ---------------------------------------------------------------------------------------------------------- its life

    async def start(self, saved: dict[str, Any]) -> None:
        """Bring everything up. Returns once every version has its words; replicas come in their own time. `saved`: a snapshot or {}."""
        self._saved = saved
        self.spawn(self._tick())
        await self.apply(self.spec)

    async def close(self) -> None:
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(version.close() for version in self.versions))

    def snapshot(self) -> dict[str, Any]:
        """Plain data. What is restored from it are counters, shares, breakers and numbers of replicas set by hand."""
        now = self._house.clock.now()
        versions = [version for model in self.models.values() for version in model.versions.values()]
        return {
            "models": {name: model.snapshot() for name, model in self.models.items()},
            "versions": {version.spec.id: version.snapshot(now) for version in versions},
        }

    # --------------------------------------------------------------------------------------------------------- applying

    async def apply(self, spec: FleetSpec) -> None:
        """Become what `spec` asks for, without losing a request. Raises what a version's model says is wrong, and changes nothing then."""
        async with self._applying:
            fresh = [version for version in spec.versions if self._alike(version) is None]
            # Everything that can fail comes first.
            means = {version.id: await asyncio.to_thread(self._means, version) for version in fresh}
            self.spec, self._tenants = spec, _tenants(spec)
            for model in spec.models:
                self._adopt(model, means)
            for name in [name for name in self.models if all(name != model.name for model in spec.models)]:
                for version in self.models.pop(name).versions.values():
                    self._retire(version, "its model is no longer in the file")

    def _alike(self, spec: VersionSpec) -> Version | None:
        """The version that serves as this one asks, or is about to."""
        model = self.models.get(spec.model)
        there = (model.versions.get(spec.name) if model is not None else None, self._coming.get(spec.id))
        return next((version for version in there if version is not None and _runs_alike(version.spec, spec)), None)

    def _adopt(self, spec: ModelSpec, means: dict[str, Means]) -> None:
        model = self.models.get(spec.name)
        if model is None:
            model = self.models[spec.name] = Model(spec)
            model.restore(self._saved.get("models", {}).get(spec.name, {}))
        else:
            model.respec(spec)
        for version in spec.versions:
            if version.id in means:
                self._bring(model, Version(version, means[version.id], self._house))
            else:
                there = self._alike(version)
                assert there is not None
                there.respec(version)
                coming = self._coming.get(version.id)
                if coming is not None and coming is not there:
                    del self._coming[version.id]
                    self._retire(coming, "what it was to replace is wanted again")
        for name in [name for name in model.versions if all(name != version.name for version in spec.versions)]:
            self._retire(model.versions.pop(name), "it is no longer in the file")

    def _bring(self, model: Model, new: Version) -> None:
        """A version that is there for the first time serves at once; one that replaces another, once it is ready."""
        before = self._coming.pop(new.spec.id, None)
        if before is not None:
            self._retire(before, "the file was changed again")
        if (saved := self._saved.get("versions", {}).get(new.spec.id)) is not None:
            new.restore(saved, self._house.clock.now())
        if new.spec.name not in model.versions:
            model.versions[new.spec.name] = new
        else:
            self._coming[new.spec.id] = new
            new.on_ready = lambda: self._take_over(model, new)
        new.scale(new.wanted)

    def _take_over(self, model: Model, new: Version) -> None:
        if self._coming.get(new.spec.id) is not new:
            return
        del self._coming[new.spec.id]
        old = model.versions.get(new.spec.name)
        model.versions[new.spec.name] = new
        self._house.note(Happening("version.replaced", new.spec.id, "its new replicas are ready, the old ones drain"))
        if old is not None:
            self._retire(old, "replaced")

    def _retire(self, version: Version, why: str) -> None:
        self._leaving.add(version)
        self.spawn(self._let_go(version, why))

    async def _let_go(self, version: Version, why: str) -> None:
        """Those who wait in its line are served by it still; then its streams end, then its replicas."""
        try:
            async with asyncio.timeout(_LAST_WAIT_S):
                await version.dispatch.turnstile.emptied()
        except TimeoutError:
            log.warning("version=%s goes while %d wait in its line", version.spec.id, len(version.line))
        await version.retire()
        self._leaving.discard(version)
        self._house.note(Happening("version.gone", version.spec.id, why))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Work that goes on by itself and ends with the fleet."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now = self._house.clock.now()
            for version in self.versions:
                try:
                    version.tick(now)
                except CamshaftError as error:
                    log.error("version=%s: %s", version.spec.id, error)


def _tenants(spec: FleetSpec) -> dict[str, TenantSpec]:
    return {tenant.name: tenant for tenant in spec.tenants}


def _runs_alike(a: VersionSpec, b: VersionSpec) -> bool:
    """Whether replicas of the one can go on as replicas of the other: shares and numbers do not matter to them."""

    def core(spec: VersionSpec) -> VersionSpec:
        return replace(spec, config=replace(spec.config, weight=0, replicas=0), tenants=())

    return core(a) == core(b)
