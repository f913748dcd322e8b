"""Router: one version's replicas, what is in flight on each, and where the next request goes. Pure; the time is handed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from camshaft.errors import CamshaftError, CircuitOpen, Unavailable
from camshaft.gateway.breaker import Breaker, BreakerConfig, Turn, must_panic
from camshaft.gateway.ledger import Lease, Ledger
from camshaft.gateway.outcome import Outcome
from camshaft.gateway.policy import BLIND, Candidate, Job, Policy, RouteConfig
from camshaft.gateway.prefix import BLOCK
from camshaft.gateway.speed import mean
from camshaft.types import Load, ReplicaInfo

__all__ = ["Job", "Lease", "Lost", "Router"]

_RAMP_LEAST = 0.1
_SHARE_LEAST = 0.2  # of a machine that somebody else keeps busy
_DONE_MOST = 0.8  # of a prompt in work, what is taken as done already from the time that it has taken
_AGAIN_S = 1.0  # to come back after, where nothing better is known


class Lost(NamedTuple):
    """A lease that nobody closed, closed by the reaper."""

    replica: str
    age_s: float


class Router:
    """Room: a replica is kept just full, so that the queue stands in front of the router, where it can still be reordered.

    A job has room where fewer than max_num_seqs requests of its class or better run, fewer prompt tokens of theirs wait than the replica
    computes in `room_s` (or in a step), and its KV cache is not full. So a better class passes a worse one, which the replica preempts; all
    classes together stay within twice max_num_seqs. Where much of its prompt is cached it may wait behind more tokens, in proportion to
    those that it saves there: what would be computed twice elsewhere is worth some waiting.
    """

    def __init__(
        self,
        policy: Policy,
        config: RouteConfig,
        breaker: BreakerConfig,
        dice: random.Random,
        told: Callable[[Turn], None] = lambda turn: None,
    ) -> None:
        self._policy = policy
        self._config = config
        self._worth = 0.0 if config.policy in BLIND else config.miss_weight  # of a cached token, in tokens to wait behind
        self._breaker_config = breaker
        self._dice = dice
        self._told = told
        self._ledgers: dict[str, Ledger] = {}
        self._breakers: dict[str, Breaker] = {}
        self._saved: dict[str, Mapping[str, Any]] = {}  # breakers of replicas that have not joined since the restart
        self._turn = 0
        # Counts whole requests, not tries, and by rate alone: one bad replica's faults in a row are not the version's.
        self.version = self._breaker("version", replace(breaker, consecutive=0, volume=2 * breaker.volume))

    # ------------------------------------------------------------------------------------------------------ replicas

    def join(self, name: str, info: ReplicaInfo, now: float) -> None:
        """A ready replica. One that left and comes back is a new one: nothing is known of it. Draining ends with it."""
        if name in self._ledgers:
            self._ledgers[name].draining = False
            return
        self._ledgers[name] = Ledger(name, info, self._config, BLOCK, now)
        self._breakers[name] = self._breaker(name, self._breaker_config)
        if (saved := self._saved.pop(name, None)) is not None:
            self._breakers[name].restore(saved, now)

    def leave(self, name: str) -> None:
        """It is gone. Leases on it stay with their holders, who close them; they count nowhere any more."""
        if self._ledgers.pop(name, None) is not None:
            # The faults of its death are not to be told of one that is there no longer.
            self._breakers.pop(name).retire()

    def hold(self, name: str) -> None:
        """Draining: what runs there goes on, nothing new comes."""
        if name in self._ledgers:
            self._ledgers[name].draining = True

    def report(self, name: str, load: Load, now: float) -> None:
        """What a replica says of itself. Never touches what we count."""
        if name in self._ledgers:
            ledger = self._ledgers[name]
            ledger.reported.take(load, len(ledger.leases))

    def breaker_state(self, name: str, now: float) -> str:
        """closed, open or half_open."""
        breaker = self._breakers.get(name)
        return "closed" if breaker is None else breaker.state(now)

    def numerics_ids(self) -> frozenset[str]:
        """Of those that may be asked now or later."""
        return frozenset(ledger.info.numerics_id for ledger in self._ledgers.values() if not ledger.draining)

    # ----------------------------------------------------------------------------------------------------- decisions

    def has_room(self, rank: int, now: float) -> bool:
        """Whether `place` would find somewhere for a short job of this class. One with a cached prefix may find room even where not."""
        return any(self._room(ledger, Job(rank=rank), 0, now) for ledger in self._askable(now))

    def place(self, job: Job, now: float, avoid: Collection[str] = ()) -> Lease | None:
        """A place for the job, counted at once; None where no replica has room or may be asked right now.

        It goes to none of `avoid` while there is another that could answer, even if that one is busy.
        """
        able = [ledger for ledger in self._askable(now) if not job.numerics_id or ledger.info.numerics_id == job.numerics_id]
        able = [ledger for ledger in able if ledger.name not in avoid] or able
        fresh = {ledger: ledger.fresh(job) for ledger in able}
        roomy = [ledger for ledger in able if self._room(ledger, job, fresh[ledger], now)]
        if not roomy:
            return None
        # A probe is somebody who can still be tried elsewhere, from the start.
        probed = [] if avoid or job.numerics_id else [ledger for ledger in roomy if self._breakers[ledger.name].wants_probe(now)]
        ledger = self._chosen(job, {ledger: fresh[ledger] for ledger in probed or roomy}, now)
        lease = Lease(ledger, job, fresh[ledger], self._config, now)
        lease.under(self._breakers[ledger.name].ask(now, force=True))
        ledger.prefixes.use(job.blocks)
        self._turn += 1
        ledger.turn = self._turn
        return lease

    def next_timer(self, now: float) -> float | None:
        """When a replica may be asked again that may not now; None where only an event can change that."""
        ends = [ledger.rest_until for ledger in self._ledgers.values()]
        ends += [now + breaker.opens_in_s(now) for breaker in self._breakers.values()]
        return min((end for end in ends if end > now), default=None)

    def refusal(self, now: float) -> CamshaftError | None:
        """Why nobody may be asked at all, with when to come back; None while somebody may."""
        if not any(not ledger.draining for ledger in self._ledgers.values()):
            return Unavailable("no replica of this model is ready; it is being started, or ask again later", retry_after_s=_AGAIN_S)
        if not self.version.may_ask(now):
            again_s = self.version.opens_in_s(now) or _AGAIN_S
            return CircuitOpen("this model failed too often and rests; ask again later", retry_after_s=again_s)
        return None

    def rests_s(self, now: float) -> float:
        """How long every replica wants to be left alone for; 0 where one does not, or where there is none."""
        return max(0.0, min((ledger.rest_until for ledger in self._ledgers.values() if not ledger.draining), default=now) - now)

    def reap(self, now: float) -> list[Lost]:
        """Close what nobody closed in `lease_s`. A last resort: each is a fault of ours, to be told as an event."""
        lost = []
        for ledger in self._ledgers.values():
            for lease in [lease for lease in ledger.leases if now - lease.placed_at > self._config.lease_s]:
                lease.close(Outcome.NEUTRAL, now)
                lost.append(Lost(ledger.name, now - lease.placed_at))
        return lost

    def candidates(self, job: Job, now: float) -> list[Candidate]:
        """Every replica as `job` sees it, whether or not it may be asked; for status pages and metrics too."""
        return self._views({ledger: ledger.fresh(job) for ledger in self._ledgers.values()}, now)

    # --------------------------------------------------------------------------------------------------------- state

    def snapshot(self, now: float) -> dict[str, Any]:
        return {"version": self.version.snapshot(now), "replicas": {name: b.snapshot(now) for name, b in self._breakers.items()}}

    def restore(self, saved: Mapping[str, Any], now: float) -> None:
        self.version.restore(saved.get("version", {}), now)
        self._saved = dict(saved.get("replicas", {}))
        for name in [name for name in self._saved if name in self._breakers]:
            self._breakers[name].restore(self._saved.pop(name), now)

    # ------------------------------------------------------------------------------------------------------- private

    def _breaker(self, subject: str, config: BreakerConfig) -> Breaker:
        return Breaker(subject, config, self._dice, self._told)

    def _askable(self, now: float) -> list[Ledger]:
        """Those that take requests and are not resting; where too many rest, all of them."""
        there = [ledger for ledger in self._ledgers.values() if not ledger.draining]
        n_closed = sum(self._breakers[ledger.name].state(now) == "closed" for ledger in there)
        if must_panic(len(there), n_closed, self._breaker_config.floor):
            return there
        return [ledger for ledger in there if self._breakers[ledger.name].may_ask(now)]

    def _room(self, ledger: Ledger, job: Job, n_fresh: int, now: float) -> bool:
        everything = ledger.in_flight()
        if now < ledger.rest_until:
            return False
        if not everything.n:
            return True
        mine = ledger.in_flight(job.rank)
        n_seqs = ledger.n_seqs(self._config)
        ramp = self._ramp(ledger, now)
        kv_tokens = ledger.info.kv_tokens
        n_saved = max(0, job.n_prompt - n_fresh)
        return (
            mine.n + ledger.reported.others(now) < max(1, ramp * n_seqs)
            and everything.n < 2 * n_seqs
            and mine.n_waiting < ledger.n_ahead(self._config, ramp * self._per_s(ledger, now)) + self._worth * n_saved
            and (not kv_tokens or mine.n_kv + n_fresh <= kv_tokens)
        )

    def _chosen(self, job: Job, fresh: Mapping[Ledger, int], now: float) -> Ledger:
        by_name = {ledger.name: ledger for ledger in fresh}
        name = self._policy.choose(job, self._views(fresh, now))
        # A policy of somebody's own may answer anything; the request is served all the same.
        return by_name.get(name) or min(fresh, key=lambda ledger: (ledger.in_flight(), ledger.turn))

    def _views(self, fresh: Mapping[Ledger, int], now: float) -> list[Candidate]:
        usual = self._usual()
        views = []
        for ledger, n_fresh in fresh.items():
            n, n_waiting, _ = ledger.in_flight()
            work, busy_s = ledger.decode.totals
            per_s = ledger.prefill.per_s(usual, n_waiting, now)
            done = min(per_s * ledger.prefill.silent_s(now), _DONE_MOST * n_waiting)
            views.append(
                Candidate(
                    name=ledger.name,
                    n_running=n + ledger.reported.others(now),
                    n_waiting=n_waiting - done,
                    n_decode=ledger.n_decode,
                    n_fresh=n_fresh,
                    n_lately=ledger.prefill.lately(now),
                    prefill_per_s=per_s,
                    decode_per_s=work / busy_s if busy_s > 0 else 0.0,
                    share=self._ramp(ledger, now) * max(_SHARE_LEAST, 1 - ledger.reported.idle_utilisation(now)),
                    turn=ledger.turn,
                )
            )
        return views

    def _usual(self) -> float:
        return mean([ledger.prefill for ledger in self._ledgers.values()], self._config.usual_per_s)

    def _per_s(self, ledger: Ledger, now: float) -> float:
        return ledger.prefill.per_s(self._usual(), ledger.in_flight().n_waiting, now)

    def _ramp(self, ledger: Ledger, now: float) -> float:
        """Share of a new replica beside older ones; among equally new ones each has all of its own."""
        if not self._config.slow_start_s:
            return 1.0
        oldest = min((other.joined_at for other in self._ledgers.values() if not other.draining), default=ledger.joined_at)
        grown = [min(1.0, _RAMP_LEAST + max(0.0, now - at) / self._config.slow_start_s) for at in (ledger.joined_at, oldest)]
        return min(1.0, grown[0] / grown[1])
