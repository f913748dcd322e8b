"""What a fleet becomes when its file changes, and what stays."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

import pytest

from camshaft.clock import SystemClock
from camshaft.cluster.backend import Backend, State
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.estimate import TokenEstimate
from camshaft.errors import Forbidden, Unavailable, UnknownModel
from camshaft.gateway.events import Happening
from camshaft.gateway.fleet import Asked, Fleet
from camshaft.gateway.limit import LimitConfig, Limiter
from camshaft.gateway.route import Job
from camshaft.gateway.spec import FleetSpec, ModelConfig, ModelSpec, TenantConfig, TenantSpec, VersionConfig, VersionSpec
from camshaft.gateway.split import Sticky
from camshaft.gateway.version import House, Means
from camshaft.observe.gateway import GatewayMetrics, Trip
from camshaft.types import Event, Finished, Request, SamplingParams, TokenPrompt
from gateway_rig import Mortal, until

LIFE = ReplicaConfig(backoff_first_s=0.01, crash_row=2, drain_s=5.0)


class Launcher:
    """Backends over engines of this process; `broken` ones never come up."""

    def __init__(self, spec: VersionSpec) -> None:
        self.broken = spec.config.source == "broken"
        self.made: list[Mortal] = []

    async def launch(self, name: str, told: Callable[[State], None]) -> Backend:
        if self.broken:
            raise Unavailable("it does not come up")
        told("warming")
        self.made.append(Mortal(token_s=0.002))
        return self.made[-1]


class Rig:
    def __init__(self, spec: FleetSpec) -> None:
        self.events: list[Happening] = []
        self.trips: list[Trip] = []
        self.launchers: dict[str, Launcher] = {}
        house = House(
            clock=SystemClock(),
            dice=random.Random(1),
            limiter=Limiter(LimitConfig()),
            share=lambda tenant: self.fleet.share(tenant),
            rank=lambda tenant: self.fleet.tenant(tenant).config.priority,
            note=self.events.append,
            metrics=GatewayMetrics(),
            trip=self.trips.append,
            observe_encode=lambda model, seconds: None,
        )
        self.fleet = Fleet(spec, house, self.means)

    def means(self, spec: VersionSpec) -> Means:
        launcher = self.launchers[f"{spec.id} {spec.config.source}"] = Launcher(spec)
        return Means(launcher, None, TokenEstimate(), 512)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]

    async def ready(self, n: int) -> None:
        await until(lambda: self.n_ready() == n)

    def n_ready(self) -> int:
        return sum(r.state == "ready" for v in self.fleet.versions for r in v.pool.replicas)

    async def ask(self, session: str = "s", model: str | None = None, n: int = 5) -> list[Event]:
        version = self.fleet.choose(Asked(model, Sticky(session)))
        sampling = SamplingParams(temperature=0, seed=1, max_tokens=n, ignore_eos=True)
        request = Request(id=session, prompt=TokenPrompt((1, 2, 3)), sampling=sampling)
        async with aclosing(version.upstream.stream(request)) as stream:  # type: ignore[type-var]
            return [event async for event in stream]


def version(name: str, source: str = "one", **config: int) -> VersionSpec:
    return VersionSpec(name, "m", VersionConfig(source=source, **config), life=LIFE)  # type: ignore[arg-type]


def spec_of(*versions: VersionSpec, tenants: tuple[TenantSpec, ...] = ()) -> FleetSpec:
    return FleetSpec((ModelSpec("m", ModelConfig(aliases=("also",)), versions),), tenants=tenants)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig(spec_of(version("v1", replicas=2)))
    await rig.fleet.start({})
    await rig.ready(2)
    yield rig
    await rig.fleet.close()


async def test_a_version_that_changed_takes_over_once_it_is_ready_and_no_stream_is_cut(rig: Rig) -> None:
    old = rig.fleet.choose(Asked(None, Sticky("s")))
    answering = [asyncio.ensure_future(rig.ask(f"s{i}", n=100)) for i in range(20)]  # more than run at once: some wait in line
    await until(lambda: old.line.n_running > 0)
    await rig.fleet.apply(spec_of(version("v1", "two", replicas=1)))
    await until(lambda: rig.fleet.choose(Asked(None, Sticky("s"))) is not old)
    for events in await asyncio.gather(*answering):
        assert isinstance(events[-1], Finished)
    await until(lambda: "version.gone" in rig.kinds())
    assert rig.n_ready() == 1
    assert isinstance((await rig.ask())[-1], Finished)
    assert all(candidate.n_running == 0 for candidate in old.router.candidates(Job(), 0.0))


async def test_one_that_does_not_come_up_never_takes_over_and_going_back_costs_nothing(rig: Rig) -> None:
    serving = rig.fleet.choose(Asked(None, Sticky("s")))
    before = rig.fleet.spec
    await rig.fleet.apply(spec_of(version("v1", "broken", replicas=2)))
    await until(lambda: rig.kinds().count("replica.gone") >= 2)
    assert rig.fleet.choose(Asked(None, Sticky("s"))) is serving
    assert isinstance((await rig.ask())[-1], Finished)
    await rig.fleet.apply(before)
    await until(lambda: rig.fleet.versions == [serving])
    assert rig.n_ready() == 2
    assert len(rig.launchers["m/v1 one"].made) == 2, "the one that served all along was not started anew"


async def test_shares_and_numbers_change_without_a_new_replica(rig: Rig) -> None:
    assert not rig.fleet.missing
    model = rig.fleet.models["m"]
    model.reweigh({"v1": 7})
    await rig.fleet.apply(spec_of(version("v1", replicas=3)))
    await rig.ready(3)
    assert model.weights == {"v1": 7}, "shares set by hand stand until the file says others"
    await rig.fleet.apply(spec_of(version("v1", replicas=1, weight=50)))
    await rig.ready(1)
    assert model.weights == {"v1": 50}
    assert len(rig.launchers["m/v1 one"].made) == 3


async def test_a_version_whose_replicas_are_all_gone_leaves_its_callers_to_another() -> None:
    rig = Rig(spec_of(version("v1", "broken", weight=100), version("v2", weight=1)))
    await rig.fleet.start({})
    await until(lambda: "replica.gone" in rig.kinds() and rig.n_ready() == 1)
    (missing,) = rig.fleet.missing  # there is a version that nobody answers for
    assert missing.startswith("m/v1-1 is gone: given up after 2 crashes in a row, the last: it does not come up; `camshaft ctl restart")
    assert {rig.fleet.choose(Asked("also", Sticky(f"s{i}"))).spec.name for i in range(50)} == {"v2"}
    await rig.fleet.close()


async def test_models_and_versions_are_for_those_who_may_have_them() -> None:
    tenants = (
        TenantSpec("a", TenantConfig(models=("other",))),
        TenantSpec("b", TenantConfig(tester=True)),
        TenantSpec("c", TenantConfig()),
    )
    rig = Rig(spec_of(version("v1"), version("v2", weight=0), tenants=tenants))
    await rig.fleet.start({})
    with pytest.raises(Forbidden):
        rig.fleet.choose(Asked("m", Sticky(tenant="a")))
    with pytest.raises(UnknownModel):
        rig.fleet.choose(Asked("n", Sticky(tenant="b")))
    assert rig.fleet.choose(Asked("m", Sticky(tenant="b"), "v2")).spec.name == "v2"
    with pytest.raises(Forbidden):
        rig.fleet.choose(Asked("m", Sticky(tenant="c"), "v2"))
    await rig.fleet.close()


async def test_what_was_set_by_hand_survives_a_restart(rig: Rig) -> None:
    rig.fleet.models["m"].reweigh({"v1": 3})
    rig.fleet.models["m"].versions["v1"].scale(1)
    saved = rig.fleet.snapshot()
    again = Rig(rig.fleet.spec)
    await again.fleet.start(saved)
    await again.ready(1)
    assert again.fleet.models["m"].weights == {"v1": 3}
    assert again.fleet.models["m"].versions["v1"].wanted == 1
    await again.fleet.close()
    changed = Rig(replace(rig.fleet.spec, models=spec_of(version("v1", replicas=3, weight=9)).models))
    await changed.fleet.start(saved)
    await changed.ready(3)
    assert changed.fleet.models["m"].weights == {"v1": 9}
    await changed.fleet.close()


async def test_every_request_is_told_once_with_how_it_ended(rig: Rig) -> None:
    await rig.ask(n=4)
    stream = rig.fleet.choose(Asked(None, Sticky("x"))).upstream.stream(
        Request(id="x", prompt=TokenPrompt((1,)), sampling=SamplingParams(temperature=0, seed=1, max_tokens=400, ignore_eos=True))
    )
    await anext(stream)  # type: ignore[arg-type]
    await stream.aclose()  # type: ignore[attr-defined]
    assert [trip.ending for trip in rig.trips] == ["length", "left"]
    assert rig.trips[0].n_output == 4
    assert rig.trips[0].replica.startswith("m/v1-")
