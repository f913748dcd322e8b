"""Scheduler: admit, plan, accept.

Running sequences first, so that decode never stalls behind a long prompt; the rest of the token budget goes to prompts. Nothing waits
for ever: a place in line ages, a blocked head closes the door behind it, and the oldest of the best rank is never preempted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from camshaft.config import EngineConfig
from camshaft.errors import BadRequest, CamshaftError, DeadlineExceeded, Overloaded, PromptTooLong
from camshaft.kv.manager import Claim, Front, KVManager
from camshaft.kv.table import Table
from camshaft.sched.pace import Pace
from camshaft.sched.plan import Planned
from camshaft.sched.policy import least_valuable, make_policy
from camshaft.sched.sequence import Sequence
from camshaft.sched.split import spare, split
from camshaft.sched.timers import Timers
from camshaft.sched.turns import Turns
from camshaft.sched.waiting import Waiting
from camshaft.types import BlockCopy, Capacity, Row, StepPlan

_LOOKAHEAD = 64  # how many of the waiting one plan looks at
_MISFITS = 4  # how many of them may turn out not to fit before the plan stops trying


class Limits(NamedTuple):
    """The bounds of one scheduler, from the configuration and the runner's capacity."""

    max_seqs: int
    max_tokens: int  # a step
    max_model_len: int
    max_alone: int  # tokens of a sequence that has the whole pool
    margin: int  # blocks kept free when admitting


class Scheduler:
    """Owns every live sequence. Engine thread only."""

    def __init__(self, config: EngineConfig, capacity: Capacity, kv: KVManager) -> None:
        self.kv = kv
        self.pace = Pace()
        self.running: list[Sequence] = []  # in order of admission
        self.policy = make_policy(config.policy, config.age_s)
        self.waiting = Waiting(self.policy)
        self.live: dict[int, Sequence] = {}
        self.limits = Limits(
            max_seqs=min(config.max_num_seqs, capacity.max_slots),
            max_tokens=min(config.max_num_batched_tokens, capacity.max_tokens),
            max_model_len=capacity.max_model_len,
            max_alone=kv.max_tokens_alone(),
            margin=int(config.watermark * kv.pool.n_usable),
        )
        self._config = config
        self._timers = Timers()
        self._leaders: dict[tuple[str, str, str], Sequence] = {}  # of n siblings, the one whose prompt blocks the others take
        self._slots = list(range(self.limits.max_seqs - 1, -1, -1))
        self._opened: list[Sequence] = []
        self._released: list[int] = []
        self._preempted: list[Sequence] = []
        self._turns = Turns(self.limits.max_seqs, self.limits.max_tokens, self.pace)

    # ------------------------------------------------------------------------------------------------------- coming in

    def submit(self, seq: Sequence, now: float) -> None:
        """Take a sequence into the line. Raises BadRequest, PromptTooLong or Overloaded; then it was never here."""
        self._check_fits(seq)
        self._check_room(seq, now)
        seq.n_limit = self.limit(seq)
        if seq.n_known > seq.n_limit:
            raise BadRequest(f"resume carries {seq.n_output} tokens, more than max_tokens allows", param="resume")
        self.live[seq.key] = seq
        self.waiting.add(seq)
        deadline_s = seq.request.limit_s(self._config.default_deadline_s)
        self._timers.add(seq.arrived_at + deadline_s, seq.key)
        if self._config.queue_timeout_s < deadline_s:
            self._timers.add(seq.arrived_at + self._config.queue_timeout_s, seq.key)

    def limit(self, seq: Sequence) -> int:
        """Tokens that it may have, prompt and output together."""
        most = seq.request.sampling.max_tokens
        return min(self.limits.max_model_len, self.limits.max_alone, seq.n_prompt + most if most is not None else self.limits.max_model_len)

    def _check_fits(self, seq: Sequence) -> None:
        n, limits = seq.n_prompt, self.limits
        if n == 0:
            raise BadRequest("the prompt is empty: give at least one token", param="prompt")
        n_new = 0 if seq.request.sampling.max_tokens == 0 else 1
        if n + n_new > limits.max_model_len:
            room = f"{n} tokens{' and one to generate' if n_new else ''} do not fit into the context of {limits.max_model_len}"
            raise PromptTooLong(f"the prompt is too long: {room}; shorten it or raise --max-model-len", param="prompt")
        if n + n_new > limits.max_alone:
            room = f"{n} tokens need {self.kv.blocks_for(n + n_new)} blocks of the KV cache, which has {self.kv.pool.n_usable}"
            room += f" ({limits.max_alone} tokens)"
            raise PromptTooLong(f"the prompt is too long: {room}; shorten it or raise --kv-memory", param="prompt")

    def _check_room(self, seq: Sequence, now: float) -> None:
        n_places = self._config.max_queued_requests + self.limits.max_seqs - len(self.running)
        n_tokens = self.waiting.n_tokens
        full = ""
        if len(self.waiting) >= n_places:
            full = f"{len(self.waiting)} requests wait already"
        elif self.waiting and n_tokens + seq.n_known > self._config.max_queued_tokens:
            full = f"{n_tokens} prompt tokens wait already"
        if full:
            retry_s = self.pace.retry_after_s(n_tokens, now)
            raise Overloaded(f"overloaded: {full}; try again in {retry_s:.0f} s", retry_after_s=retry_s)

    # ------------------------------------------------------------------------------------------------------- going out

    def remove(self, seq: Sequence, now: float) -> bool:
        """Forget a sequence wherever it is, its blocks going to the cache. False if it is not here (any more); that is no error."""
        if self.live.pop(seq.key, None) is None:
            return False
        if seq.slot >= 0:
            self._leave(seq, now)
        else:
            self.waiting.remove(seq)
        leader_key = self._leader_key(seq)
        if self._leaders.get(leader_key) is seq:
            del self._leaders[leader_key]
        self._timers.sweep(self.live, len(self.live))
        return True

    def expire(self, now: float) -> list[tuple[Sequence, CamshaftError]]:
        """Remove the sequences that are out of time, each with what to tell its client."""
        out: list[tuple[Sequence, CamshaftError]] = []
        for key in self._timers.due(now):
            seq = self.live.get(key)
            if seq is None:
                continue
            waited_s = now - seq.arrived_at
            deadline_s = seq.request.limit_s(self._config.default_deadline_s)
            if waited_s >= deadline_s:
                done = f"the deadline of {deadline_s:g} s passed after {seq.n_output} tokens"
                error: CamshaftError = DeadlineExceeded(f"{done}; allow more time or ask for less")
            elif seq.started_at is None and waited_s >= self._config.queue_timeout_s:
                retry_s = self.pace.retry_after_s(self.waiting.n_tokens, now)
                error = Overloaded(f"overloaded: waited {waited_s:.0f} s in line; try again in {retry_s:.0f} s", retry_after_s=retry_s)
            else:
                continue
            self.remove(seq, now)
            out.append((seq, error))
        return out

    def next_timer(self) -> float | None:
        """When `expire` may have something to do."""
        return self._timers.next_at()

    def take_released(self) -> list[int]:
        """Slots that nobody holds any more and the runner still does; told once."""
        released, self._released = self._released, []
        return released

    # --------------------------------------------------------------------------------------------------------- planning

    def plan(self, now: float) -> Planned:
        """Decide the next step. Without rows where there is nothing to do."""
        chosen: dict[Sequence, int] = {}  # tokens of each, in the order of the rows
        n_decode = self._plan_decodes(chosen, now)
        if self.waiting and not self._preempted:  # room was short a moment ago: who comes in now would be thrown out next
            self._admit(now)
        n_prefill = 0
        if self._preempted or len(chosen) < len(self.running):
            n_prefill = self._plan_prefills(chosen, n_decode, now)
        seqs = [seq for seq in chosen if seq.slot >= 0]
        copies: list[BlockCopy] = []
        rows = tuple([self._row(seq, chosen[seq], copies) for seq in seqs])
        planned = Planned(StepPlan(rows, tuple(copies)), seqs, self._opened, self.take_released(), self._preempted, n_prefill, n_decode)
        self._opened, self._preempted = [], []
        return planned

    def accept(self, planned: Planned, now: float) -> None:
        """The step is done: each row's tokens are computed. Sampled ids are appended by the caller, after this."""
        kv = self.kv
        for seq, row in zip(planned.seqs, planned.plan.rows, strict=True):
            n_new, table = len(row.ids), seq.table
            seq.n_computed += n_new
            assert table is not None
            if n_new > 1 or kv.has_news(table, seq.n_computed):
                kv.commit(table, seq.ids, seq.n_computed, now)

    def _row(self, seq: Sequence, n_new: int, copies: list[BlockCopy]) -> Row:
        table, start, ids = seq.table, seq.n_computed, seq.ids
        assert table is not None
        if table.copies:
            copies.extend(self.kv.take_copies(table))
        patches = self.kv.take_patches(table) if table.patches else ()
        end = start + n_new
        n_sample = 1 if end == len(ids) and end < seq.n_limit else 0
        return Row(
            seq.slot,
            start,
            tuple(ids[start:end]) if n_new > 1 else (ids[start],),
            n_sample,
            patches,
            seq.n_scored >= 0 and seq.wants_scores,
        )

    def _plan_decodes(self, chosen: dict[Sequence, int], now: float) -> int:
        decodes = self._turns.choose(self.running)
        size = self.kv.block_size
        for seq in decodes:
            # Within a block there is room already, which is nearly always.
            if seq.slot >= 0 and (seq.n_computed % size or self._make_room(seq, seq.n_computed + 1, now)):
                chosen[seq] = 1
        return sum(1 for seq in chosen if seq.slot >= 0) if self._preempted else len(chosen)

    def _plan_prefills(self, chosen: dict[Sequence, int], n_decode: int, now: float) -> int:
        prompts = sorted(
            (s for s in self.running if s not in chosen and s not in self._turns.resting and s.n_todo > 0), key=lambda s: s.key
        )
        budget = self.limits.max_tokens - n_decode
        if n_decode:
            budget = min(budget, self.pace.chunk_cap())
        given = split(budget, [s.n_todo for s in prompts], [s.rank for s in prompts])
        best = min((seq.rank for seq in chosen), default=None)
        if best is not None:
            self.pace.side_used(spare(given, [s.rank > best for s in prompts], self.pace.side_cap()))
        n_total = 0
        for seq, n in zip(prompts, given, strict=True):
            if n and seq.slot >= 0 and self._make_room(seq, seq.n_computed + n, now):
                chosen[seq] = n
        for seq in prompts:
            n_total += chosen.get(seq, 0) if seq.slot >= 0 else 0
        return n_total

    def _make_room(self, seq: Sequence, n_tokens: int, now: float) -> bool:
        """Blocks for the sequence's next tokens, at the cost of the least valuable ones. False if it was the least valuable itself."""
        assert seq.table is not None
        while not self.kv.reserve(seq.table, n_tokens, now):
            victim = least_valuable(self.running)
            assert len(self.running) > 1, "a sequence that fits alone did not fit alone"
            self._preempt(victim, now)
            if victim is seq:
                return False
        return True

    # -------------------------------------------------------------------------------------------------------- admission

    def _admit(self, now: float) -> None:
        if not self.waiting:
            return
        n_misfits = 0
        fronts = self._fronts()
        for seq in self.waiting.first(_LOOKAHEAD):
            twin = self._twin(seq)
            if self._should_wait(seq, twin, fronts):
                continue
            if self._try_admit(seq, twin, now) or self._displace(seq, now):
                self._note_front(seq, fronts)
                if self._preempted:
                    return
                continue
            if not self._slots:
                return
            n_misfits += 1
            seq.blocked_at = now if seq.blocked_at is None else seq.blocked_at
            # Smaller ones may pass for a while; then the door stays shut until this one fits.
            if n_misfits == _MISFITS or now - seq.blocked_at >= self._config.age_s:
                return

    def _try_admit(self, seq: Sequence, twin: Sequence | None, now: float) -> bool:
        if not self._slots:
            return False
        grant = self.kv.admit(self._claim(seq), now, twin.table if twin is not None else None)
        if grant is None:
            return False
        self.waiting.remove(seq)
        self.pace.drained(seq.n_known, now)
        seq.table, seq.n_computed = grant
        seq.slot = self._slots.pop()
        seq.rank = self.policy.rank(seq, now)
        seq.blocked_at = None
        if seq.n_cached is None:
            seq.n_cached = min(seq.n_computed, seq.n_prompt)
            seq.started_at = now
        if seq.wants_scores:
            seq.n_scored = 0
        if seq.request.siblings and twin is None:
            self._leaders[self._leader_key(seq)] = seq
        self.running.append(seq)
        self._opened.append(seq)
        return True

    def _displace(self, seq: Sequence, now: float) -> bool:
        """Admit by preempting those that `seq` may displace, if that is sure to make room."""
        victims = sorted((r for r in self.running if self.policy.may_displace(seq, r)), key=lambda s: (-s.rank, -s.key))
        if not victims:
            return False
        n_short = self.kv.n_short(self._claim(seq))
        chosen: list[Sequence] = []
        for victim in victims:
            chosen.append(victim)
            assert victim.table is not None
            n_short -= sum(1 for block in victim.table.held() if block.refs == 1)
            if n_short <= 0:
                for victim in chosen:
                    self._preempt(victim, now)
                return self._try_admit(seq, None, now)
        return False

    def _claim(self, seq: Sequence) -> Claim:
        request = seq.request
        n_reserve = min(seq.n_known + 1, seq.n_limit)
        margin = self.limits.margin if self.running else 0
        session = request.session if seq.started_at is None else ""
        return Claim(seq.ids, n_reserve, request.tenant, request.cache_salt, not seq.wants_scores, session, margin)

    def _leader_key(self, seq: Sequence) -> tuple[str, str, str]:
        return (seq.request.tenant, seq.request.cache_salt, seq.request.siblings)

    def _twin(self, seq: Sequence) -> Sequence | None:
        """The running sibling whose prompt this one may take over."""
        if not seq.request.siblings or not self.kv.prefix_caching or seq.wants_scores or seq.n_output:
            return None
        leader = self._leaders.get(self._leader_key(seq))
        same = leader is not None and leader.slot >= 0 and leader.n_prompt == seq.n_prompt and leader.ids[: seq.n_prompt] == seq.ids
        return leader if same else None

    def _should_wait(self, seq: Sequence, twin: Sequence | None, fronts: set[Front]) -> bool:
        """Whether a running sequence is about to compute what this one would compute too. It is running, so the wait ends."""
        if twin is not None and twin.n_computed < seq.n_prompt:
            return True
        if not fronts or seq.wants_scores:
            return False
        front = self.kv.front(self._claim(seq))
        return front is not None and front in fronts

    def _fronts(self) -> set[Front]:
        if not self.kv.prefix_caching or not self.waiting:
            return set()
        fronts: set[Front] = set()
        for seq in self.running:
            self._note_front(seq, fronts)
        return fronts

    def _note_front(self, seq: Sequence, fronts: set[Front]) -> None:
        if seq.n_todo > 1 and seq.table is not None and self.kv.prefix_caching:
            front = self.kv.front_of(seq.table, seq.ids)
            if front is not None:
                fronts.add(front)

    def _preempt(self, seq: Sequence, now: float) -> None:
        """Back into the line; the blocks go to the cache, where it will find them again as far as they are not needed elsewhere."""
        self._leave(seq, now)
        seq.n_computed = 0
        seq.n_preempted += 1
        self.waiting.add(seq)
        self._preempted.append(seq)

    def _leave(self, seq: Sequence, now: float) -> None:
        assert seq.table is not None
        self.kv.release(seq.table, now)
        self.running.remove(seq)
        if seq in self._opened:
            self._opened.remove(seq)
        else:
            self._released.append(seq.slot)
        self._slots.append(seq.slot)
        seq.slot, seq.table = -1, None

    # ------------------------------------------------------------------------------------------------------------ books

    def tables(self) -> Iterable[tuple[Table, int]]:
        """(table, n_computed) of all running sequences."""
        return [(s.table, s.n_computed) for s in self.running if s.table is not None]

    def check(self) -> None:
        """Prove the books. Raises AssertionError."""
        for seq in self.live.values():
            seq.check()
        assert len(self.running) + len(self.waiting) == len(self.live)
        assert len({s.slot for s in self.running}) == len(self.running)
        assert len(self.running) + len(self._slots) == self.limits.max_seqs
        assert self.waiting.n_tokens == sum(s.n_known for s in self.waiting)
        self.kv.check(table for table, _ in self.tables())
