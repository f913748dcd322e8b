"""Version: one way to answer for a model. Its replicas, and everything that decides among its requests."""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from camshaft.cluster.backend import Launcher
from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.foreign import Access
from camshaft.cluster.pool import Pool
from camshaft.cluster.replica import Change, Seat
from camshaft.engine.encode import Bounds, PromptEncoder
from camshaft.engine.words import Words
from camshaft.errors import CamshaftError, Unavailable
from camshaft.gateway.breaker import Turn
from camshaft.gateway.dispatch import Dispatch, Move, Named, Policies
from camshaft.gateway.encode import Encode
from camshaft.gateway.events import Happening, Note, Plain
from camshaft.gateway.limit import Limiter
from camshaft.gateway.line import Line
from camshaft.gateway.observed import Observed, Seen
from camshaft.gateway.policy import make_policy
from camshaft.gateway.retry import RetryBudget
from camshaft.gateway.route import Router
from camshaft.gateway.size import Sizer
from camshaft.gateway.spec import VersionSpec
from camshaft.observe.gateway import GatewayMetrics, Trip
from camshaft.types import Clock, ErrorInfo, ReplicaInfo, Upstream

_REFUSED_EVERY_S = 60.0


@dataclass(frozen=True)
class House:
    """What all versions of a fleet share."""

    clock: Clock
    dice: random.Random
    limiter: Limiter
    share: Callable[[str], float]  # of a tenant, relative to others
    rank: Callable[[str], int]  # a tenant's class: its requests are of this one or a later one
    note: Note
    metrics: GatewayMetrics
    trip: Callable[[Trip], None]  # every request at its end
    observe_encode: Callable[[str, float], None]  # model, seconds
    onward: Callable[[str], str] = lambda trace: trace  # as observed.Seen has it


@dataclass(frozen=True)
class Means:
    """How a version is brought up: what starts its replicas, and how its text becomes tokens."""

    launcher: Launcher
    words: Words | None  # of a model of ours; None where another server encodes
    estimate: TokenEstimate
    max_model_len: int = 0  # tokens, prompt and answer together; 0 where another server keeps that to itself


class Version:
    """Event loop thread only. Owner of its pool; `close` ends it."""

    def __init__(self, spec: VersionSpec, means: Means, house: House) -> None:
        self.spec = spec
        self.words = means.words
        self.max_model_len = means.max_model_len
        self.info = ReplicaInfo()  # of the latest replica that was ready
        self.pool = Pool(spec.id, Seat(means.launcher, spec.life, self._changed, house.clock, patient=spec.config.engine == "openai"))
        self.line = Line(spec.line, house.share)
        self.router = Router(make_policy(spec.route), spec.route, spec.breaker, house.dice, self._breaker_turned)
        self.dispatch = self._make_dispatch(means, house)
        self.upstream = self._make_upstream(means, house)
        self.on_ready: Callable[[], None] = lambda: None
        self.wanted = spec.config.replicas
        self._clock = house.clock
        self._note = house.note
        self._metrics = house.metrics
        self._refused_at = -math.inf  # when it was last told that our key is refused

    @property
    def longest_s(self) -> float:
        """From a request's arrival to its end."""
        return self.spec.settings.default_deadline_s

    @property
    def lives(self) -> bool:
        """Whether it has a replica, or will have one."""
        return any(replica.state != "gone" for replica in self.pool.replicas)

    @property
    def missing(self) -> str:
        """Why it takes no traffic though it should; "" where it does. The same words as long as nothing new is known."""
        replicas = self.pool.replicas
        if not self.wanted or any(replica.state == "ready" for replica in replicas):
            return ""
        # Whoever failed says more than whoever is on its way.
        replica = max(replicas, key=lambda r: (bool(r.last_error), r.state == "gone"), default=None)
        if replica is None:
            return f"{self.spec.id} has no replica yet"
        if replica.state == "gone":
            return f"{replica.name} is gone: {replica.reason}; `camshaft ctl restart {replica.name}` starts it again"
        return (
            f"{replica.name} failed and is tried again: {replica.last_error}"
            if replica.last_error
            else f"{replica.name} is {replica.state}"
        )

    def respec(self, spec: VersionSpec) -> None:
        """The same version with another share or number of replicas."""
        n = spec.config.replicas
        self.spec, changed = spec, n != self.spec.config.replicas
        if changed:
            self.scale(n)

    def scale(self, n: int) -> None:
        """So many replicas. What is too much is drained."""
        self.wanted = n
        self.pool.scale(n)
        self._look()

    def tick(self, now: float) -> None:
        """Once a second: what replicas report, what was lost track of, what a clock alone can change."""
        for replica in self.pool.replicas:
            if replica.backend is not None:
                self.router.report(replica.name, replica.backend.load, now)
        for lost in self.router.reap(now):
            self._tell("lease.lost", lost.replica, "a request was counted there for longer than any may take", {"age_s": lost.age_s})
        self.dispatch.turnstile.turn()

    async def restart(self, replica: str) -> None:
        """A new one in its place. What goes wrong is told as an event: nobody waits for this."""
        try:
            await self.pool.restart(replica)
        except CamshaftError as error:
            self._tell("replica.kept", replica, f"it could not be replaced: {error.message}")

    async def retire(self) -> None:
        """Let its streams end, within the bound of its replicas, then close."""
        await asyncio.gather(*(self.pool.drain(replica.name) for replica in self.pool.replicas))
        await self.close()

    async def close(self) -> None:
        """End those who wait, then the replicas. Streams that run end with Draining."""
        await self.upstream.close()
        await self.pool.close()

    def snapshot(self, now: float) -> dict[str, Any]:
        scaled = {"wanted": self.wanted, "of_file": self.spec.config.replicas}
        return {"line": self.line.snapshot(), "router": self.router.snapshot(now), "scaled": scaled}

    def restore(self, saved: dict[str, Any], now: float) -> None:
        """A number of replicas that was set by hand stands until the file says another."""
        scaled = saved.get("scaled", {})
        if scaled.get("of_file") == self.spec.config.replicas:
            self.wanted = int(scaled.get("wanted", self.wanted))
        self.line.restore(saved.get("line", {}))
        self.router.restore(saved.get("router", {}), now)

    # ---------------------------------------------------------------------------------------------------------- making

    def _make_dispatch(self, means: Means, house: House) -> Dispatch:
        named = Named(self.spec.name, self.longest_s, house.rank, self._moved, self._refused)
        policies = Policies(house.limiter, self.line, self.router, RetryBudget(self.spec.retry, house.dice))
        sizer = Sizer(lambda: self.info.max_model_len, means.estimate.tokens_of)
        return Dispatch(named, policies, self.pool.backend, sizer, house.clock)

    def _make_upstream(self, means: Means, house: House) -> Upstream:
        if means.words is None:
            return self._observed(self.dispatch, house)
        speech = means.words.speech
        bounds = Bounds(means.words.tokenizer.vocab_size, means.max_model_len)
        model = self.spec.model
        encoder = PromptEncoder(speech.codec, bounds, speech.render, lambda seconds: house.observe_encode(model, seconds))
        return self._observed(Encode(encoder, self.dispatch, self.longest_s), house)

    def _observed(self, inner: Upstream, house: House) -> Upstream:
        spec = self.spec
        provider = spec.config.engine if spec.config.engine == "camshaft" else spec.foreign.dialect
        return Observed(Seen(spec.model, spec.name, provider, house.rank, house.onward), inner, house.clock, house.trip)

    # --------------------------------------------------------------------------------------------------------- hearing

    def _changed(self, change: Change) -> None:
        now = self._clock.now()
        name = change.replica
        if change.new == "ready":
            backend = self.pool.backend(name)
            assert backend is not None
            self.info = backend.info
            self.router.join(name, backend.info, now)
        elif change.new == "draining":
            self.router.hold(name)
        else:
            self.router.leave(name)
        self._tell(f"replica.{change.new}", name, change.reason, {"was": change.old})
        self._look()
        if change.new == "ready":
            self.on_ready()

    def _look(self) -> None:
        """Who waits goes through where there is room now, and is told where there never will be."""
        turnstile = self.dispatch.turnstile
        turnstile.expecting = any(r.state in ("starting", "warming") for r in self.pool.replicas)
        if not turnstile.expecting and not any(r.state in ("ready", "draining") for r in self.pool.replicas):
            turnstile.fail_waiting(self._nobody)
        turnstile.turn()

    def _nobody(self) -> CamshaftError:
        return Unavailable("no replica of this model is left", retry_after_s=1.0)

    def _breaker_turned(self, turn: Turn) -> None:
        subject = self.spec.id if turn.subject == "version" else turn.subject
        self._note(Happening(f"breaker.{turn.after}", subject, f"was {turn.before}", dict(turn.evidence)))

    def _moved(self, move: Move) -> None:
        self._metrics.moved(self.spec.model, self.spec.name, moved=move.moved)
        if move.moved:
            self._tell("stream.moved", move.replica, f"{move.request} goes on elsewhere: {move.error.message}", {"tokens": move.n_tokens})
        else:
            self._tell("stream.stuck", move.replica, f"{move.request} could not go on: {move.why}", {"tokens": move.n_tokens})

    def _refused(self, replica: str, error: ErrorInfo) -> None:
        """Told now and then: each request would say the same."""
        now, config = self._clock.now(), self.spec.config
        if now - self._refused_at >= _REFUSED_EVERY_S:
            self._refused_at = now
            self._tell(
                "upstream.refused", self.spec.id, f"{error.message}; {Access(config.model, config.key_env).blame}", {"replica": replica}
            )

    def _tell(self, kind: str, subject: str, text: str, evidence: Mapping[str, Plain] = {}) -> None:
        self._note(Happening(kind, subject, text, dict(evidence)))
