"""Pace: what steps have cost, and what follows for the next one."""

from __future__ import annotations

import math

TARGET_STEP_S = 0.4  # longest step wanted while a stream waits for it: a reader notices half a second, a pause is more than a step
LEAST_CHUNK = 16  # tokens; below it a prompt would hardly move
_KEEP = 0.7  # share of the old estimate in the new one
_LEAST_SURPRISE, _MOST_SURPRISE = 1.25, 2.0  # how many times longer than expected a step may take; what is beyond no chunk can help
_FIRST_SURPRISE = 1.8  # before any was measured
_CALM = 0.95  # what is left of a surprise after a step that brought no larger one
SIDE_STRETCH = 0.25  # share by which sequences of a worse class may lengthen the steps of a better one that has just begun
SIDE_YIELD = 0.75  # share of places that a better class holds, from which on they may not at all
SIDE_SAVED_S = 0.2  # of that, saved up from steps that did not need it: more than a chunk or a token takes, so that all get on
_FADE = 0.98  # of what steps without prompts taught, with each that follows
_MEMORY_S = 15.0  # how far back the drain rate looks


class Pace:
    """Running estimates of step times, of how far steps exceed them, and of the rate at which prompts are worked off."""

    def __init__(self) -> None:
        self._decode_s = 0.0  # a step without prompt tokens
        self._prefill_s = 0.0  # one prompt token beyond that
        self._surprise = _FIRST_SURPRISE  # times that a step took of what was expected, the worst of late
        self._side_decode_s = self._side_prefill_s = 0.0  # saved up for worse classes
        self._fit = Fit()  # of steps without prompts over their sequences
        self._drained = 0.0  # prompt tokens that left the line, older ones counting less
        self._drained_at: float | None = None
        self._watched_s = 0.0

    def observe(self, n_prefill: int, n_decode: int, step_s: float) -> None:
        """A step of `n_prefill` prompt tokens and `n_decode` single tokens took `step_s`."""
        if not n_prefill:
            self._decode_s = _blend(self._decode_s, step_s)
            self._fit.add(n_decode, step_s)
            return
        if n_decode and self._prefill_s > 0:
            calmer = 1.0 + _CALM * (self._surprise - 1.0)
            self._surprise = min(_MOST_SURPRISE, max(_LEAST_SURPRISE, calmer, step_s / self.step_s(n_prefill)))
        own = step_s - (self._decode_s if n_decode else 0.0)
        # A step is never free, whatever the clock says: a cap that only grows would end in one long step.
        self._prefill_s = _blend(self._prefill_s, max(own, 0.1 * step_s) / n_prefill)

    def chunk_cap(self) -> int:
        """Prompt tokens that may be computed beside running decodes. Changes when tokens are computed, never which.

        As many as keep even a step that surprises as the worst of late within the target. The steadier the machine, the longer the
        chunks, and the fewer times a prompt pays for the decodes beside it.
        """
        if self._prefill_s <= 0:
            return 4 * LEAST_CHUNK  # nothing measured yet
        return max(LEAST_CHUNK, int((TARGET_STEP_S / self._surprise - self._decode_s) / self._prefill_s))

    def side_earn(self, n_better: int, held: float) -> None:
        """A step with `n_better` decodes of the best class begins, beside which worse classes have something to do.

        Their time is saved up: half of what a better class's steps may be stretched by is for decodes, half for prompts (`side_cap`).
        `held` is the share of places that the best class holds: where it needs nearly all of them, longer steps would make it queue.
        """
        base_s, each_s = self._fit.line()
        stretch = SIDE_STRETCH * max(0.0, 1.0 - held / SIDE_YIELD)
        more_s = 0.5 * stretch * (base_s + each_s * n_better)
        self._side_prefill_s = min(SIDE_SAVED_S, self._side_prefill_s + more_s)
        self._side_decode_s = min(SIDE_SAVED_S, self._side_decode_s + more_s)

    def side_decodes(self, n_worse: int) -> int:
        """How many of `n_worse` sequences of worse classes decode beside the best one in this step, of the time that they have saved."""
        each_s = self._fit.line()[1]
        if each_s <= 0:
            return n_worse  # nothing is known, or one more costs nothing
        n = min(n_worse, int(self._side_decode_s / each_s))
        self._side_decode_s -= n * each_s
        return n

    def side_cap(self) -> int:
        """Prompt tokens of a worse class beside decodes of a better one; what is used of them is `side_used`."""
        if self._prefill_s <= 0:
            return LEAST_CHUNK
        n = int(self._side_prefill_s / self._prefill_s)
        return n if n >= LEAST_CHUNK else 0

    def side_used(self, n_tokens: int) -> None:
        self._side_prefill_s -= n_tokens * self._prefill_s

    def step_s(self, n_prefill: int) -> float:
        """How long a step with that many prompt tokens is expected to take."""
        return self._decode_s + n_prefill * self._prefill_s

    def drained(self, n_tokens: int, now: float) -> None:
        """That many prompt tokens have left the line by admission."""
        gap = 0.0 if self._drained_at is None else now - self._drained_at
        self._drained_at = now
        self._watched_s += gap
        self._drained = self._drained * math.exp(-gap / _MEMORY_S) + n_tokens

    def retry_after_s(self, n_tokens: int, now: float) -> float:
        """When a line of that many tokens will have been worked off at the present rate, between 1 and 600 s."""
        rate = 0.0
        if self._drained_at is not None:
            gap = now - self._drained_at
            rate = self._drained * math.exp(-gap / _MEMORY_S) / min(_MEMORY_S, max(1.0, self._watched_s + gap))
        elif self._prefill_s > 0:
            rate = 1.0 / self._prefill_s
        return min(600.0, max(1.0, n_tokens / rate)) if rate > 0 else 1.0


class Fit:
    """Step time as a line over the number of sequences, by least squares with a fading memory."""

    def __init__(self) -> None:
        self._n = self._x = self._xx = self._t = self._xt = 0.0

    def add(self, n_seqs: int, step_s: float) -> None:
        self._n = _FADE * self._n + 1.0
        self._x = _FADE * self._x + n_seqs
        self._xx = _FADE * self._xx + n_seqs * n_seqs
        self._t = _FADE * self._t + step_s
        self._xt = _FADE * self._xt + n_seqs * step_s

    def line(self) -> tuple[float, float]:
        """(seconds of a step, seconds of each of its sequences), neither below 0; (0, 0) before any step.

        Where steps were too much alike to tell, half of one is taken to be its sequences': what is done upon that makes them differ.
        """
        if not self._x:
            return 0.0, 0.0
        spread = self._n * self._xx - self._x * self._x
        if spread <= 0.01 * self._xx * self._n:
            return 0.5 * self._t / self._n, 0.5 * self._t / self._x
        each_s = max(0.0, (self._n * self._xt - self._x * self._t) / spread)
        return max(0.0, (self._t - each_s * self._x) / self._n), each_s


def _blend(old: float, new: float) -> float:
    return new if old == 0.0 else _KEEP * old + (1 - _KEEP) * new
