"""Carry: what a client has of one answer, and what to ask of the next replica so that it sees no seam.

Because scheduling never changes output, a replica of the same numerics id that is given the prompt and the tokens so far goes on with
the very tokens, text and log-probabilities that the lost one would have given. So a stream that changes its replica is one stream.
"""

from __future__ import annotations

import msgspec

from camshaft.types import Delta, Event, Failed, Finished, Request, Resume, Route, Scored, Started


class Carry:
    """One answer's ledger. `see` each event of each replica in turn; what it returns is the client's."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._ids: list[int] = []
        self._n_chars = 0
        self._n_cached: int | None = None  # by the first replica that began
        self._scored = False
        self._opaque = False  # something came that cannot be told to another replica

    @property
    def begun(self) -> bool:
        """Whether the client has output, which a fresh start would give it twice."""
        return bool(self._ids) or self._opaque

    @property
    def movable(self) -> bool:
        """Whether another replica can be told where it stands."""
        return not self._opaque

    @property
    def n_ids(self) -> int:
        return len(self._ids)

    def ask(self) -> Request:
        """The request for the next replica."""
        if not self.begun and not self._scored:
            return self._request
        sampling = self._request.sampling
        if self._scored:
            # The client has the prompt's log-probabilities; without them the prompt may come from the prefix cache.
            sampling = msgspec.structs.replace(sampling, prompt_logprobs=None)
        resume = Resume(tuple(self._ids), self._n_chars) if self._ids else None
        return msgspec.structs.replace(self._request, sampling=sampling, resume=resume)

    def see(self, event: Event, route: Route, queue_s: float) -> Event | None:
        """The event as the client gets it; None for one that it has already. `queue_s`: what it waited before the replica had it."""
        if isinstance(event, Delta):
            return self._delta(event)
        if isinstance(event, Started):
            if self._n_cached is not None:
                return None
            self._n_cached = event.n_cached
            return msgspec.structs.replace(event, queue_s=queue_s + event.queue_s, route=route)
        if isinstance(event, Scored):
            if self._scored:
                return None
            self._scored = True
            return event
        if isinstance(event, Finished):
            return self._finished(event)
        assert isinstance(event, Failed)
        return event

    def _delta(self, event: Delta) -> Delta:
        self._ids.extend(event.ids)
        self._n_chars += len(event.text)
        if not event.ids and (event.n_tokens or event.calls or event.reasoning):
            self._opaque = True
        return event

    def _finished(self, event: Finished) -> Finished:
        """A prompt counts once, and its cached tokens are those that the first replica found."""
        if self._n_cached is None or self._n_cached < 0 or self._n_cached == event.usage.n_cached:
            return event
        return msgspec.structs.replace(event, usage=msgspec.structs.replace(event.usage, n_cached=self._n_cached))
