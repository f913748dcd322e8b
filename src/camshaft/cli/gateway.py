"""Gateway: a fleet, the edge before it, and everything that keeps and shows its state, assembled and run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from camshaft import __version__
from camshaft.api.app import App, create_app
from camshaft.api.auth import Keys
from camshaft.api.control import create_control_app
from camshaft.api.fleet_directory import FleetDirectory
from camshaft.api.server import serve
from camshaft.api.tls import context_of, renew
from camshaft.clock import SystemClock
from camshaft.cluster.meeting import sweep
from camshaft.config import ServerConfig
from camshaft.errors import CamshaftError, Unavailable
from camshaft.gateway.admin import Admin
from camshaft.gateway.events import EventLog, Happening, logged
from camshaft.gateway.file import parse
from camshaft.gateway.fleet import Fleet
from camshaft.gateway.folder import TOKENS, Folder, Running
from camshaft.gateway.gauges import gauges
from camshaft.gateway.history import History
from camshaft.gateway.launch import means_of
from camshaft.gateway.limit import LimitConfig, Limiter
from camshaft.gateway.operate import Desk, Operator
from camshaft.gateway.spec import FleetSpec
from camshaft.gateway.state import Store
from camshaft.gateway.version import House
from camshaft.observe.gateway import GatewayMetrics, Trip
from camshaft.observe.merge import Page
from camshaft.observe.metrics import Metrics
from camshaft.observe.trace import tracing_to

log = logging.getLogger(__name__)

KEEP_S = 2.0  # from one snapshot to the next


class Source(NamedTuple):
    """The file that a gateway runs."""

    path: Path
    text: str
    spec: FleetSpec
    over: Callable[[FleetSpec], FleetSpec] = lambda spec: spec  # what the command line says goes before whatever the file says

    def parse(self, text: str) -> FleetSpec:
        """Another text of it. Raises FileRejected."""
        return self.over(parse(text, self.path))


class Gateway:
    """Everything of one gateway. Made by `opened`, which ends it too."""

    def __init__(self, source: Source, folder: Folder, past: Past, events: EventLog) -> None:
        store = past.store
        self.folder = folder
        self.store = store
        self.events = events
        self.metrics = Metrics()
        self.gateway_metrics = GatewayMetrics(lambda: gauges(self.fleet.versions, self._clock.now()))
        self.tracing = tracing_to(source.spec.gateway.otlp_endpoint, __version__)
        self.history = past.history
        self._source = source
        self._door: Door | None = None  # once it serves
        self._clock = SystemClock()
        spec = source.spec
        self.limiter = Limiter(spec.limits, _limits(spec))
        house = House(
            clock=self._clock,
            dice=random.Random(),
            limiter=self.limiter,
            share=lambda tenant: self.fleet.share(tenant),
            rank=lambda tenant: self.fleet.tenant(tenant).config.priority,
            note=events.note,
            metrics=self.gateway_metrics,
            trip=self._ended,
            observe_encode=lambda model, seconds: self.metrics.engine(model).stage("encode", seconds),
            onward=self.tracing.onward,
        )
        self.fleet = Fleet(spec, house, means_of)
        self.directory = FleetDirectory(self.fleet, self.limiter, keys_of(spec), self._clock)
        desk = Desk(source.path, source.parse, self.history, self.limiter, self._clock, self._applied, lambda: store.trouble)
        self.operator = Operator(self.fleet, desk)
        self.admin = Admin(self.operator, events, store)

    async def start(self) -> None:
        """Raises what the file's models say is wrong."""
        saved = await self._recalled("fleet")
        limits = await self._recalled("limits")
        if limits:
            try:
                self.limiter.restore(limits, self._clock.now(), time.time())
            except msgspec.ValidationError:
                log.warning("the limits' state of an earlier run is not one of this version and is left out")
        await self.fleet.start(saved)
        self.history.accept(self._source.text, "start")

    async def serve(self, listening: Callable[[Running], None]) -> None:
        """Until a signal. `listening` hears the addresses, once both ports take connections."""
        spec = self.fleet.spec
        gateway = spec.gateway
        loop = asyncio.get_running_loop()
        public: asyncio.Future[str] = loop.create_future()
        admin: asyncio.Future[str] = loop.create_future()
        over, stop = asyncio.Event(), asyncio.Event()
        app = self.app()
        tls = context_of(gateway.tls_cert, gateway.tls_key) if gateway.tls_cert else None
        self._door = Door(app, tls)
        control = self.control_app()
        serving = asyncio.ensure_future(serve(control, control.edge.config, admin.set_result, over, signals=False))
        # A port that was taken meanwhile: without its admin API a gateway does not run.
        serving.add_done_callback(lambda done: stop.set())
        side = [
            asyncio.ensure_future(self._keep()),
            serving,
            asyncio.ensure_future(self._announce(public, admin, listening)),
        ]
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        try:
            await serve(app, spec.server, public.set_result, stop, tls=tls)
            if serving.done():
                serving.result()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)
            over.set()
            side[0].cancel()
            side[2].cancel()
            await asyncio.gather(*side, return_exceptions=True)

    def app(self) -> App:
        """The edge, as clients meet it."""
        spec = self.fleet.spec
        app = create_app(self.directory, spec.server, self.metrics)
        # What a tenant uses is for operators, and not for the others whose keys open this page.
        app.edge.more_metrics = lambda: self._pages(tenants=not self.fleet.spec.tenants)
        app.origins = frozenset(origin.encode() for origin in spec.gateway.cors_origins)
        return app

    def control_app(self) -> App:
        """The admin API, as operators meet it."""
        gateway = self.fleet.spec.gateway
        tokens = {name: self.folder.token(name) for name in TOKENS}
        config = ServerConfig(host=gateway.admin_host, port=gateway.admin_port, drain_s=1.0)
        control = create_control_app(self.admin, tokens, config, self.metrics)
        control.edge.more_metrics = lambda: self._pages(tenants=True)
        return control

    async def _pages(self, *, tenants: bool) -> list[Page]:
        """The gateway's own numbers, then those of its replicas with labels that say whose they are."""
        replicas = [(version, r) for version in self.fleet.versions for r in version.pool.replicas]
        live = [(v, r, r.backend) for v, r in replicas if r.backend is not None]
        texts = await asyncio.gather(*(backend.metrics() for _, _, backend in live))
        labels = [{"version": v.spec.name, "replica": r.name} for v, r, _ in live]
        return [({}, self.gateway_metrics.render(tenants=tenants)), ({}, self.store.metrics.render()), *zip(labels, texts, strict=True)]

    async def _announce(self, public: asyncio.Future[str], admin: asyncio.Future[str], listening: Callable[[Running], None]) -> None:
        self.operator.address = await public
        running = Running(os.getpid(), await admin, self.operator.address, str(self._source.path))
        self.folder.announce(running)
        listening(running)

    def _hang_up(self) -> None:
        self.fleet.spawn(self._reload())

    async def _reload(self) -> None:
        try:
            await self.admin.reload("SIGHUP")
        except CamshaftError as error:
            log.error("the file was not taken, and nothing is changed: %s", error.message)

    async def close(self) -> None:
        await self.fleet.close()
        self._snapshot()
        await asyncio.to_thread(self.tracing.close)

    def _ended(self, trip: Trip) -> None:
        self.gateway_metrics.ended(trip)
        self.tracing.ended(trip)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(KEEP_S)
            self._snapshot()

    def _snapshot(self) -> None:
        self.store.keep("fleet", self.fleet.snapshot())
        self.store.keep("limits", self.limiter.snapshot(self._clock.now(), time.time()))

    async def _recalled(self, name: str) -> dict[str, object]:
        try:
            found = await self.store.recall(name)
        except Unavailable as error:
            log.warning("the state of an earlier run cannot be read, and is left out: %s", error.message)
            return {}
        return found if isinstance(found, dict) else {}

    def _applied(self, spec: FleetSpec) -> None:
        self.limiter.configure(spec.limits, _limits(spec), self._clock.now())
        self.directory.keys = keys_of(spec)
        if self._door is not None:
            self._door.become(spec)


class Door(NamedTuple):
    """The public port, as far as a new file can change it."""

    app: App
    tls: ssl.SSLContext | None

    def become(self, spec: FleetSpec) -> None:
        """Raises ConfigError where the certificate is none any more."""
        gateway = spec.gateway
        self.app.edge.reconfigure(spec.server)
        self.app.origins = frozenset(origin.encode() for origin in gateway.cors_origins)
        if self.tls is not None and gateway.tls_cert:
            # Read again even where the paths are the same: that is how a certificate is renewed.
            renew(self.tls, gateway.tls_cert, gateway.tls_key)


class Past(NamedTuple):
    """What earlier runs left."""

    store: Store
    history: History


@contextlib.asynccontextmanager
async def opened(source: Source) -> AsyncIterator[Gateway]:
    """A gateway that is started. Raises ConfigError where another one uses its folder."""
    sweep()
    folder = Folder(Path(source.spec.gateway.state_dir))
    loop = asyncio.get_running_loop()
    events: EventLog | None = None

    def tell(trouble: str) -> None:
        if events is not None:
            kind, text = ("state.failed", trouble) if trouble else ("state.recovered", "the state on disk is written again")
            events.note(Happening(kind, "state", text))

    def told(trouble: str) -> None:
        loop.call_soon_threadsafe(tell, trouble)

    try:
        store = Store(folder.database, told=told)
        try:
            past = Past(store, History(store))
            await past.history.load()
            try:
                last_at = await store.last_at()
            except Unavailable:
                last_at = 0.0
            events = EventLog(store.note, logged, after=last_at)
            gateway = Gateway(_not_rolled_back(source, past.history), folder, past, events)
            try:
                await gateway.start()
                yield gateway
            finally:
                await gateway.close()
        finally:
            await store.close()
    finally:
        folder.close()


def _not_rolled_back(source: Source, history: History) -> Source:
    """`source`, or what was accepted instead of it: a restart must not bring back what somebody rolled back."""
    current = history.current
    if current is None or not history.is_bad(source.text):
        return source
    log.warning("%s is the very file that was rolled back; revision %d runs in its place", source.path, current.revision)
    return source._replace(text=current.text, spec=source.parse(current.text))


def keys_of(spec: FleetSpec) -> Keys:
    """Who may ask, by the digests that the file has."""
    return Keys.of_digests([(digest, tenant.name) for tenant in spec.tenants for digest in tenant.digests])


def _limits(spec: FleetSpec) -> dict[str, LimitConfig]:
    return {tenant.name: tenant.limits for tenant in spec.tenants}
