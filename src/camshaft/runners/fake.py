"""FakeRunner: a runner without arithmetic whose output depends on every block that it reads.

What it keeps in its blocks is, per token and group, a digest of all the tokens before it, chained through the blocks as they are read.
A sampled token is a hash of all that is visible. So a wrong block table, a lost copy or a block shared by mistake changes the output, just
as it would with a real model, and a plan that breaks the contract raises PlanError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from camshaft.types import Capacity, KVGroup, Mask, RawLogprob, Row, RowResult, SamplingParams, StepPlan, StepResult

_WORD = (1 << 64) - 1

SMALL = Capacity(vocab_size=512, max_model_len=2048, block_size=16, n_blocks=257, groups=(KVGroup(2),), max_slots=32, max_tokens=512)


class PlanError(Exception):
    """The plan breaks the contract of `Runner.step`. Says how."""


@dataclass(frozen=True)
class FakeOptions:
    """How a fake runner behaves. `sleep` is called with the seconds that a step is meant to take: a real or a manual clock's."""

    step_s: float = 0.0
    token_s: float = 0.0
    sleep: Callable[[float], None] | None = None
    reply: Callable[[tuple[int, ...]], Sequence[int] | None] | None = None  # prompt -> its output, then `eos_id`; None: hash as usual
    eos_id: int = 0
    fail: Callable[[StepPlan], bool] | None = None  # True: this step raises, as a crashing kernel would


class _Slot:
    """What a runner remembers of an open slot."""

    def __init__(self, params: SamplingParams, choice: int, prompt_ids: tuple[int, ...], n_groups: int) -> None:
        self.params = params
        self.choice = choice
        self.prompt_ids = prompt_ids
        self.script: Sequence[int] | None = None
        self.tables: list[list[int]] = [[] for _ in range(n_groups)]
        self.next: int | None = None  # where the next row must start; None: anywhere, since a prefix may be cached


class FakeRunner:
    """Deterministic over processes and machines. Not fast: a step costs Python time per visible token."""

    invariant = True
    numerics_id = "fake"

    def __init__(self, capacity: Capacity = SMALL, options: FakeOptions = FakeOptions()) -> None:
        self._capacity = capacity
        self._options = options
        self._memory = [[0] * capacity.block_size for _ in range(capacity.n_blocks)]
        self._slots: dict[int, _Slot] = {}
        self.n_steps = 0
        self.n_tokens = 0
        self.closed = False

    def capacity(self) -> Capacity:
        return self._capacity

    def open(self, slot: int, params: SamplingParams, choice: int, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        if slot in self._slots:
            raise PlanError(f"slot {slot} is open already")
        if not 0 <= slot < self._capacity.max_slots:
            raise PlanError(f"slot {slot} is not one of {self._capacity.max_slots}")
        if params.seed is None:
            raise PlanError("a runner draws no seeds")
        state = _Slot(params, choice, tuple(prompt_ids), len(self._capacity.groups))
        if self._options.reply is not None:
            state.script = self._options.reply(state.prompt_ids)
        self._slots[slot] = state

    def release(self, slot: int) -> None:
        self._slots.pop(slot, None)

    def close(self) -> None:
        self.closed = True

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        options = self._options
        if options.fail is not None and options.fail(plan):
            raise RuntimeError("a kernel crashed, as it was told to")
        self._check(plan)
        for row in plan.rows:
            self._patch(row)
        self._check_writes(plan)
        for src, dst in ((c.src, c.dst) for c in plan.copies):
            self._memory[dst][:] = self._memory[src]
        rows = tuple(self._compute(row, masks.get(row.slot)) for row in plan.rows)
        self.n_steps += 1
        self.n_tokens += plan.n_tokens
        step_s = options.step_s + options.token_s * plan.n_tokens
        if options.sleep is not None and step_s:
            options.sleep(step_s)
        return StepResult(rows, step_s)

    # ---------------------------------------------------------------------------------------------------------- checks

    def _check(self, plan: StepPlan) -> None:
        capacity = self._capacity
        if len({row.slot for row in plan.rows}) != len(plan.rows):
            raise PlanError("two rows on one slot")
        if plan.n_tokens > capacity.max_tokens:
            raise PlanError(f"{plan.n_tokens} tokens in a step for {capacity.max_tokens}")
        for row in plan.rows:
            state = self._slots.get(row.slot)
            if state is None:
                raise PlanError(f"slot {row.slot} is not open")
            if not row.ids or not 0 <= row.n_sample <= 1:
                raise PlanError(f"a row of {len(row.ids)} tokens with {row.n_sample} samples")
            if state.next is not None and row.start != state.next:
                raise PlanError(f"slot {row.slot} goes on at {row.start}, not at {state.next}")
            if row.start < 0 or row.start + len(row.ids) > capacity.max_model_len:
                raise PlanError(f"positions {row.start} to {row.start + len(row.ids)} in a context of {capacity.max_model_len}")
            if not all(0 <= i < capacity.vocab_size for i in row.ids):
                raise PlanError("a token outside the vocabulary")
        for copy in plan.copies:
            if not (0 < copy.src < capacity.n_blocks and 0 < copy.dst < capacity.n_blocks and copy.src != copy.dst):
                raise PlanError(f"copy {copy}")

    def _patch(self, row: Row) -> None:
        for patch in row.patches:
            table = self._slots[row.slot].tables[patch.group]
            table.extend([0] * (patch.index + len(patch.ids) - len(table)))
            table[patch.index : patch.index + len(patch.ids)] = patch.ids
            if not all(0 <= i < self._capacity.n_blocks for i in patch.ids):
                raise PlanError(f"patch {patch}")

    def _check_writes(self, plan: StepPlan) -> None:
        """No row writes into a block that another open slot can see."""
        size = self._capacity.block_size
        seen: dict[int, set[int]] = {}
        for slot, state in self._slots.items():
            for g, table in enumerate(state.tables):
                for block in table[self._first(g, state.next or 0) // size :]:
                    if block:
                        seen.setdefault(block, set()).add(slot)
        for row in plan.rows:
            for table in self._slots[row.slot].tables:
                for index in range(row.start // size, (row.start + len(row.ids) - 1) // size + 1):
                    block = table[index] if index < len(table) else 0
                    if not block:
                        raise PlanError(f"slot {row.slot} has no block for positions from {index * size}")
                    if len(seen.get(block, ())) > 1:
                        raise PlanError(f"slot {row.slot} writes into block {block}, which others share")

    # --------------------------------------------------------------------------------------------------------- compute

    def _first(self, group: int, position: int) -> int:
        """The first position that the token at `position` sees."""
        window = self._capacity.groups[group].window
        return 0 if window is None else max(0, position - window + 1)

    def _compute(self, row: Row, mask: Mask | None) -> RowResult:
        state, size = self._slots[row.slot], self._capacity.block_size
        for g, table in enumerate(state.tables):
            for i, token in enumerate(row.ids):
                p = row.start + i
                before = self._read(table, p - 1) if p else 1
                self._memory[table[p // size]][p % size] = _mix(before, token + 1, p * len(state.tables) + g)
        end = row.start + len(row.ids)
        state.next = end
        ids: tuple[int, ...] = ()
        logprobs: tuple[RawLogprob, ...] = ()
        if row.n_sample:
            token = self._sample(state, end, mask)
            ids = (token,)
            if state.params.logprobs is not None and token >= 0:
                logprobs = (self._logprob(state, end, token, state.params.logprobs),)
        scores: tuple[RawLogprob, ...] = ()
        if row.score:
            k = state.params.prompt_logprobs or 0
            last = min(end, len(state.prompt_ids) - 1)
            scores = tuple(self._logprob(state, p + 1, state.prompt_ids[p + 1], k) for p in range(row.start, last))
        return RowResult(ids, logprobs, scores)

    def _read(self, table: list[int], position: int) -> int:
        block = table[position // self._capacity.block_size]
        if block == 0:
            raise PlanError(f"position {position} is visible and has no block")
        return self._memory[block][position % self._capacity.block_size]

    def _digest(self, state: _Slot, end: int) -> int:
        """A hash of all that the token at `end - 1` sees, as it lies in the blocks."""
        size, digest = self._capacity.block_size, end
        for g, table in enumerate(state.tables):
            first = self._first(g, end - 1)
            values: list[int] = []
            for index in range(first // size, (end - 1) // size + 1):
                if table[index] == 0:
                    raise PlanError(f"block {index} of group {g} is visible and not there")
                values.extend(self._memory[table[index]])
            start = first // size * size
            digest = _mix(digest, hash(tuple(values[first - start : end - start])) & _WORD, g)
        return digest

    def _sample(self, state: _Slot, end: int, mask: Mask | None) -> int:
        params, vocab = state.params, self._capacity.vocab_size
        digest = self._digest(state, end)
        if params.temperature > 0:
            digest = _mix(digest, (params.seed or 0) & _WORD, state.choice + 1)
        token = _mix(digest, end, 7) % vocab
        if state.script is not None:
            i = end - len(state.prompt_ids)
            token = state.script[i] if i < len(state.script) else self._options.eos_id
        if mask is None or token < 0:
            return token
        bits = int.from_bytes(bytes(mask), "little") & ((1 << vocab) - 1)
        higher = bits >> token
        if higher:
            return token + (higher & -higher).bit_length() - 1
        return (bits & -bits).bit_length() - 1  # -1 where nothing is allowed: no finite logit is left

    def _logprob(self, state: _Slot, end: int, token: int, k: int) -> RawLogprob:
        """Numbers that look like log-probabilities and depend on the visible context alone."""
        digest = self._digest(state, end)
        vocab = self._capacity.vocab_size
        top = tuple((_mix(digest, i, 3) % vocab, -0.5 * (i + 1)) for i in range(k))
        return RawLogprob(token, -(_mix(digest, token + 1, 5) % 1000) / 100, top)


def _mix(a: int, b: int, c: int) -> int:
    """Three numbers to one of 64 bits (the finaliser of splitmix64)."""
    x = (a * 0x9E3779B97F4A7C15 + b * 0xBF58476D1CE4E5B9 + c * 0x94D049BB133111EB) & _WORD
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & _WORD
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & _WORD
    return x ^ x >> 31
