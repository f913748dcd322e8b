"""Turns: which of the sequences that decode take part in a step, where not all can or should."""

from __future__ import annotations

from camshaft.sched.pace import Pace
from camshaft.sched.sequence import Sequence


class Turns:
    """In turn, so that all get on."""

    def __init__(self, max_seqs: int, max_tokens: int, pace: Pace) -> None:
        self.resting: set[Sequence] = set()  # they could decode, and sit this step out
        self._max_seqs = max_seqs
        self._max_tokens = max_tokens
        self._pace = pace
        self._turn = 0  # where decoding starts when not all fit into one step
        self._side_turn = 0  # the same for worse classes beside a better one

    def choose(self, running: list[Sequence]) -> list[Sequence]:
        """Of worse classes only as many as do not stretch the best one's step too far, and no more than a step holds."""
        if self.resting:
            self.resting.clear()
        decodes = self._beside_the_best(running, [s for s in running if len(s.ids) - s.n_computed == 1])
        if len(decodes) > self._max_tokens:
            turn = self._turn % len(decodes)
            decodes = (decodes[turn:] + decodes[:turn])[: self._max_tokens]
            self._turn += self._max_tokens
        return decodes

    def _beside_the_best(self, running: list[Sequence], decodes: list[Sequence]) -> list[Sequence]:
        if not decodes:
            return decodes
        best = min(s.rank for s in decodes)
        if not any(s.rank > best for s in running):
            return decodes
        worse = [s for s in decodes if s.rank > best]
        n_better = len(decodes) - len(worse)
        # Earned also where they have prompts only: those would never be computed beside a better class that always decodes.
        self._pace.side_earn(n_better, n_better / self._max_seqs)
        n_side = self._pace.side_decodes(len(worse))
        if len(worse) <= n_side:
            return decodes
        turn = self._side_turn % len(worse)
        self._side_turn += n_side
        self.resting.update((worse[turn:] + worse[:turn])[n_side:])
        return [s for s in decodes if s not in self.resting]
