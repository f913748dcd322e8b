"""Times of single steps of a runner: no scheduler, no text. What one native call costs for so many sequences, new tokens and context."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from camshaft.errors import ConfigError
from camshaft.types import Capacity, Row, Runner, SamplingParams, StepPlan, TablePatch

_GREEDY = SamplingParams(temperature=0.0, seed=0)


class Steps:
    """`n_rows` sequences with room for `n_positions` tokens each, over a runner that is ours alone. `close` gives the slots back.

    The native program may be asked for the same positions again: it writes the same places anew.
    Raises ConfigError where the runner has no room.
    """

    def __init__(self, runner: Runner, *, n_rows: int, n_positions: int, seed: int = 0) -> None:
        self._runner = runner
        self._capacity = runner.capacity()
        if n_rows > self._capacity.max_slots:
            raise ConfigError(f"{n_rows} sequences are more than --max-num-seqs {self._capacity.max_slots}")
        dice = random.Random(seed)
        self._ids = [tuple(dice.randrange(3, self._capacity.vocab_size) for _ in range(n_positions)) for _ in range(n_rows)]
        # A slot's table is handed over with its first row.
        self._fresh = {slot: whole_table(self._capacity, n_positions, nth=slot) for slot in range(n_rows)}
        for slot in range(n_rows):
            runner.open(slot, _GREEDY, 0, self._ids[slot][:1], ())

    def fill(self, n_tokens: int) -> None:
        """Computes positions 0 to n_tokens of every sequence, one after another, in as large chunks as a step takes."""
        for slot, ids in enumerate(self._ids):
            for start in range(0, n_tokens, self._capacity.max_tokens):
                self._step([self._row(slot, start, ids[start : min(n_tokens, start + self._capacity.max_tokens)], n_sample=0)])

    def seconds(self, *, start: int, n_new: int = 1, n_sample: int = 1) -> float:
        """Wall time of one step: `n_new` tokens of every sequence from position `start` on, the last `n_sample` of each sampled."""
        rows = [self._row(slot, start, ids[start : start + n_new], n_sample) for slot, ids in enumerate(self._ids)]
        return self._step(rows)

    def close(self) -> None:
        for slot in range(len(self._ids)):
            self._runner.release(slot)

    def _row(self, slot: int, start: int, ids: Sequence[int], n_sample: int) -> Row:
        return Row(slot, start, tuple(ids), n_sample, self._fresh.pop(slot, ()))

    def _step(self, rows: Sequence[Row]) -> float:
        began = time.perf_counter()
        self._runner.step(StepPlan(tuple(rows)), {})
        return time.perf_counter() - began


def whole_table(capacity: Capacity, n_tokens: int, nth: int = 0) -> tuple[TablePatch, ...]:
    """Blocks of every group for the whole of the nth sequence of `n_tokens`, dealt from block 1 on. Raises ConfigError without room."""
    per_group = -(-n_tokens // capacity.block_size)
    n_groups = len(capacity.groups)
    first = 1 + nth * per_group * n_groups
    if n_tokens > capacity.max_model_len or first + per_group * n_groups > capacity.n_blocks:
        raise ConfigError(f"a sequence of {n_tokens} tokens does not fit; raise --max-model-len or --kv-memory")
    return tuple(
        TablePatch(group, 0, tuple(range(first + group * per_group, first + (group + 1) * per_group))) for group in range(n_groups)
    )
