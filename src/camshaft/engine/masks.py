"""Masks: which tokens may come next, as bits."""

from __future__ import annotations

from collections.abc import Sequence

from camshaft.engine.job import Job
from camshaft.errors import BadGrammar, CamshaftError
from camshaft.sample.grammar import Matcher


class Masks:
    """Allowed-token bitmaps of one vocabulary. Bit i of little-endian word w is token 32w + i."""

    def __init__(self, vocab_size: int) -> None:
        self._n_bytes = -(-vocab_size // 32) * 4
        self._all = (1 << vocab_size) - 1
        self._without: dict[frozenset[int], int] = {}

    def fill(self, job: Job) -> bytes | None:
        """The mask for a job's next token; None where everything is allowed."""
        output = job.output
        if job.matcher is None and output.n >= output.min_tokens:
            return None
        too_short = output.n < output.min_tokens and bool(output.ends)
        if job.matcher is None:
            return self._bytes(self._floor(frozenset(output.ends))) if too_short else None
        mask = job.matcher.mask
        if not too_short:
            return mask
        both = int.from_bytes(mask, "little") & self._floor(frozenset(output.ends))
        # A grammar that is complete allows only the end; a minimum of tokens must not turn that into nothing at all.
        return self._bytes(both) if both else mask

    def _floor(self, ends: frozenset[int]) -> int:
        """Everything but the ids that end an output."""
        mask = self._without.get(ends)
        if mask is None:
            mask = self._all
            for id in ends:
                mask &= ~(1 << id)
            if len(self._without) >= 256:
                self._without.clear()
            self._without[ends] = mask
        return mask

    def _bytes(self, mask: int) -> bytes:
        return mask.to_bytes(self._n_bytes, "little")


def catch_up(matcher: Matcher, ids: Sequence[int]) -> bool:
    """Run a fresh matcher over what was generated elsewhere; True where nothing but the end may follow. Raises BadGrammar."""
    complete = False
    for id in ids:
        try:
            if complete:
                raise BadGrammar("it is complete before them")
            complete = matcher.push(id)
        except CamshaftError as error:
            raise BadGrammar(f"the resumed tokens do not match the grammar: {error.message}", param="resume") from None
    return complete
