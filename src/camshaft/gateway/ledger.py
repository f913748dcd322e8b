"""Ledger: what is in flight on one replica, counted by us, at once. A lease is one entry; closing it, exactly once, takes all of it out."""

from __future__ import annotations

from types import TracebackType
from typing import NamedTuple

from camshaft.gateway.breaker import Trial
from camshaft.gateway.outcome import Outcome, Verdict, of_exception
from camshaft.gateway.policy import Job, RouteConfig
from camshaft.gateway.prefix import Prefixes
from camshaft.gateway.reported import Reported
from camshaft.gateway.speed import Rate
from camshaft.types import ReplicaInfo

_REST_MOST_S = 60.0
_BATCH = 512  # prompt tokens a step of a replica that does not say


class InFlight(NamedTuple):
    n: int  # requests
    n_waiting: int  # prompt tokens still to compute
    n_kv: int  # tokens whose KV is held for them, shared prefixes apart


class Ledger:
    """One replica's entries, what they taught (speed, prefixes), and what it reported."""

    def __init__(self, name: str, info: ReplicaInfo, config: RouteConfig, block: int, now: float) -> None:
        self.name = name
        self._block = block  # tokens
        self.info = info
        self.joined_at = now
        self.draining = False  # nothing new
        self.turn = 0
        self.rest_until = now  # it said when it wants to be asked again
        self.prefill = Rate(config.half_s)
        self.decode = Rate(config.half_s)
        self.prefixes = Prefixes((info.kv_tokens or config.prefix_tokens) // block)
        self.leases: set[Lease] = set()
        self.n_decode = 0  # output tokens still expected
        self._by_rank: dict[int, list[int]] = {}  # rank -> the fields of InFlight
        self.reported = Reported(config.fresh_s)

    def in_flight(self, rank: int | None = None) -> InFlight:
        """Of this class and better ones; None: of all."""
        n = n_waiting = n_kv = 0
        for its, (requests, tokens, held) in self._by_rank.items():
            if rank is None or its <= rank:
                n, n_waiting, n_kv = n + requests, n_waiting + tokens, n_kv + held
        return InFlight(n, n_waiting, n_kv)

    def held(self, job: Job) -> int:
        """Tokens of the job's prompt that should be cached here, going by what was sent here."""
        return max(0, min(self.prefixes.match(job.blocks) * self._block, job.n_prompt))

    def fresh(self, job: Job) -> int:
        """Tokens of the job's prompt that it has to compute, as far as we know."""
        return job.n_prompt - int(self.held(job) * self.prefixes.trust)

    def n_seqs(self, config: RouteConfig) -> int:
        return self.info.max_num_seqs or config.seqs

    def n_ahead(self, config: RouteConfig, per_s: float) -> float:
        """Prompt tokens that may wait there: about `room_s` of its work, and at least a step of it."""
        return max(config.room_s * per_s, self.info.max_num_batched_tokens or _BATCH)

    def add(self, rank: int, n: int, n_waiting: int, n_kv: int) -> None:
        entry = self._by_rank.setdefault(rank, [0, 0, 0])
        entry[0] += n
        entry[1] += n_waiting
        entry[2] += n_kv
        if entry == [0, 0, 0]:
            del self._by_rank[rank]


class Lease:
    """A request's place on a replica. As a context manager it closes by what ended the block, unless it was closed with more knowledge."""

    __slots__ = ("_job", "_ledger", "_n_decode", "_n_held", "_n_kv", "_n_waiting", "_now", "_per_request", "_trial", "placed_at")

    def __init__(self, ledger: Ledger, job: Job, n_fresh: int, config: RouteConfig, now: float) -> None:
        self._ledger = ledger
        self._job = job
        self._trial: Trial | None = None
        self._now = now
        self._per_request = config.request_tokens
        self.placed_at = now
        self._n_held = ledger.held(job)
        self._n_waiting = max(0, n_fresh)  # -1 once the prompt is computed
        self._n_decode = max(0, job.n_output)
        self._n_kv = self._n_waiting
        ledger.leases.add(self)
        ledger.reported.note(len(ledger.leases))
        ledger.add(job.rank, 1, self._n_waiting, self._n_kv)
        ledger.n_decode += self._n_decode
        ledger.prefill.begin(now)

    @property
    def replica(self) -> str:
        return self._ledger.name

    @property
    def closed(self) -> bool:
        return self not in self._ledger.leases

    def under(self, trial: Trial | None) -> None:
        """Whose outcome this lease's closing tells."""
        self._trial = trial

    def started(self, n_cached: int, now: float) -> None:
        """It was admitted, and found so many tokens of its prompt cached."""
        self._now = now
        if not self.closed and self._ledger.prefixes.found(self._n_held, n_cached, True) and self._n_waiting >= 0:
            self._expect(max(0, self._job.n_prompt - n_cached))

    def ended(self, n_cached: int, now: float) -> None:
        """What the answer's usage says was cached: some servers tell only then. Closing is another matter."""
        self._now = now
        if not self.closed:
            self._ledger.prefixes.found(self._n_held, n_cached, False)

    def produced(self, n: int, now: float) -> bool:
        """Output came: `n` tokens more. True for the first, which says that the prompt is computed: there is room for another's."""
        self._now = now
        if self.closed or n <= 0:
            return False
        ledger = self._ledger
        first = self._n_waiting >= 0
        if first:
            ledger.prefill.credit(self._n_waiting + self._per_request, now)
            ledger.prefill.end()
            ledger.add(self._job.rank, 0, -self._n_waiting, 0)
            self._n_waiting = -1
            ledger.decode.begin(now)
            ledger.decode.credit(0, now)
        else:
            ledger.decode.credit(n, now)
        fewer = min(n, self._n_decode)
        self._n_decode -= fewer
        ledger.n_decode -= fewer
        self._n_kv += n
        ledger.add(self._job.rank, 0, 0, n)
        return first

    def close(self, verdict: Outcome | Verdict, now: float) -> None:
        """It ended. Only the first call counts."""
        if self.closed:
            return
        self._now = now
        ledger = self._ledger
        outcome, rest_s = (verdict.outcome, verdict.rest_s) if isinstance(verdict, Verdict) else (verdict, 0.0)
        ledger.leases.discard(self)
        ledger.add(self._job.rank, -1, -max(0, self._n_waiting), -self._n_kv)
        (ledger.prefill if self._n_waiting >= 0 else ledger.decode).end()
        ledger.n_decode -= self._n_decode
        if rest_s > 0:
            ledger.rest_until = max(ledger.rest_until, now + min(rest_s, _REST_MOST_S))
        if self._trial is not None:
            self._trial.close(outcome, now)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # No clock at hand: the time of its last sign of life is the latest that it knows.
        self.close(of_exception(error), self._now)

    def _expect(self, n_waiting: int) -> None:
        ledger = self._ledger
        more = n_waiting - self._n_waiting
        ledger.add(self._job.rank, 0, more, more)
        self._n_waiting += more
        self._n_kv += more
