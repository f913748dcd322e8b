"""Drives a runner by hand: deals blocks, makes rows, and reads the logits of every position."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from camshaft.runners.cpu import CpuRunner
from camshaft.types import Capacity, Row, SamplingParams, StepPlan, TablePatch

# Scored rows keep their logits, so that every position can be compared, not the last of each chunk alone.
ALL = SamplingParams(temperature=0.0, seed=0, prompt_logprobs=0)


class Blocks:
    """Block ids of the whole pool in a random order. What comes back is dealt again first: stale KV in it must not matter."""

    def __init__(self, capacity: Capacity, seed: int = 0) -> None:
        self._free = list(range(1, capacity.n_blocks))
        self._refs: Counter[int] = Counter()
        random.Random(seed).shuffle(self._free)

    def take(self, n: int) -> list[int]:
        taken = [self._free.pop() for _ in range(n)]
        self._refs.update(taken)
        return taken

    def share(self, ids: Sequence[int]) -> None:
        self._refs.update(ids)

    def give_back(self, id: int) -> None:
        self._refs[id] -= 1
        if self._refs[id] == 0:
            self._free.append(id)


class Driven:
    """One sequence in one slot. Its tables grow as it is computed, and forget what a window has passed."""

    def __init__(self, runner: CpuRunner, slot: int, ids: Sequence[int], blocks: Blocks) -> None:
        self.ids, self.n_done = tuple(ids), 0
        self.tables: list[list[int]] = [[] for _ in runner.capacity().groups]
        self.logits = np.zeros((len(ids), runner.capacity().vocab_size), np.float32)
        self._runner, self._blocks = runner, blocks
        self.open(slot)

    def open(self, slot: int) -> None:
        """Enters `slot`; also after a preemption, with the KV of the first `n_done` tokens still in its blocks."""
        self.slot = slot
        self._known: list[list[int]] = [[] for _ in self.tables]  # tables as the runner has them
        self._runner.open(slot, ALL, 0, self.ids, ())

    @property
    def n_left(self) -> int:
        return len(self.ids) - self.n_done

    def share(self, other: Driven, n_blocks: int) -> None:
        """Starts after the whole blocks that `other` has computed, as after a prefix hit."""
        n_tokens = n_blocks * self._runner.capacity().block_size
        assert n_tokens <= other.n_done
        assert self.ids[:n_tokens] == other.ids[:n_tokens]
        self.tables = [table[:n_blocks] for table in other.tables]
        for table in self.tables:
            self._blocks.share(table)
        self.logits[:n_tokens] = other.logits[:n_tokens]
        self.n_done = n_tokens

    def row(self, n_new: int) -> Row:
        """The next `n_new` tokens, every one of them scored; the sequence's last one is sampled, which keeps its logits as well."""
        end = self.n_done + n_new
        size = self._runner.capacity().block_size
        patches: list[TablePatch] = []
        for group, table in enumerate(self.tables):
            self._forget(table, self._runner.capacity().groups[group].window)
            table += self._blocks.take(max(0, -(-end // size) - len(table)))
            patches += _difference(group, self._known[group], table)
            self._known[group] = list(table)
        return Row(self.slot, self.n_done, self.ids[self.n_done : end], int(end == len(self.ids)), tuple(patches), score=True)

    def _forget(self, table: list[int], window: int | None) -> None:
        if window is None:
            return
        first_seen = max(0, self.n_done - window + 1)
        for index in range(first_seen // self._runner.capacity().block_size):
            if table[index]:
                self._blocks.give_back(table[index])
                table[index] = 0


def _difference(group: int, known: Sequence[int], table: Sequence[int]) -> list[TablePatch]:
    changed = [TablePatch(group, i, (new,)) for i, (old, new) in enumerate(zip(known, table, strict=False)) if old != new]
    return changed + ([TablePatch(group, len(known), tuple(table[len(known) :]))] if len(known) < len(table) else [])


def step(runner: CpuRunner, work: Sequence[tuple[Driven, int]]) -> None:
    """One step of `n` new tokens of each sequence; their logits land in `Driven.logits`."""
    runner.program.keep_logits(True)
    runner.step(StepPlan(tuple(driven.row(n) for driven, n in work)), {})
    kept = runner.program.last_logits()
    at = 0
    for driven, n in work:
        driven.logits[driven.n_done : driven.n_done + n] = kept[at : at + n]
        driven.n_done += n
        at += n
    assert at == len(kept)


def run_alone(runner: CpuRunner, ids: Sequence[int], chunk: int) -> NDArray[np.float32]:
    """Logits of every position [n, vocab], computed in chunks of up to `chunk` tokens with nobody else in the batch."""
    driven = Driven(runner, 0, ids, Blocks(runner.capacity()))
    while driven.n_left:
        step(runner, [(driven, min(chunk, driven.n_left))])
    runner.release(0)
    return driven.logits


class Ask(NamedTuple):
    """What to generate from: as `Runner.open` takes it."""

    prompt: Sequence[int]
    params: SamplingParams = SamplingParams(temperature=0.0, seed=0)
    choice: int = 0
    output: Sequence[int] = ()


def generate(runner: CpuRunner, asks: Sequence[Ask], n: int) -> list[list[int]]:
    """The next `n` ids of each, all in one batch, as the program samples them. Ask i is in slot i."""
    blocks = Blocks(runner.capacity())
    size = runner.capacity().block_size
    for slot, ask in enumerate(asks):
        runner.open(slot, ask.params, ask.choice, ask.prompt, ask.output)
    new = [(*ask.prompt, *ask.output) for ask in asks]
    start, n_blocks = [0] * len(asks), [0] * len(asks)
    out: list[list[int]] = [[] for _ in asks]
    for _ in range(n):
        rows = []
        for slot, ids in enumerate(new):
            more = -(-(start[slot] + len(ids)) // size) - n_blocks[slot]
            patches = [TablePatch(g, n_blocks[slot], tuple(blocks.take(more))) for g in range(len(runner.capacity().groups)) if more]
            rows.append(Row(slot, start[slot], ids, 1, tuple(patches)))
            start[slot] += len(ids)
            n_blocks[slot] += more
        for slot, result in enumerate(runner.step(StepPlan(tuple(rows)), {}).rows):
            new[slot] = result.ids
            out[slot] += result.ids
    for slot in range(len(asks)):
        runner.release(slot)
    return out
