"""Job: one request inside the engine, from submission to its terminal event."""

from __future__ import annotations

from typing import Protocol

from camshaft.engine.output import Output
from camshaft.sample.grammar import Matcher
from camshaft.sched.sequence import Sequence
from camshaft.types import Event, Request, TokenLogprob


class Sink(Protocol):
    """Where a job's events go. Called from the engine thread and never waits."""

    def put(self, event: Event) -> None: ...

    def send(self) -> bool:
        """Hand over what was put; called once per step. False: nobody will ever read it."""
        ...


class Job:
    """Handle of one answer. Everything but `sink` belongs to the engine thread once it is submitted."""

    __slots__ = ("detok_s", "first_at", "flush_s", "last_at", "matcher", "output", "request", "scores", "seq", "sink")

    def __init__(self, seq: Sequence, output: Output, sink: Sink, matcher: Matcher | None = None) -> None:
        self.request: Request = seq.request
        self.seq = seq
        self.output = output
        self.sink = sink
        self.matcher = matcher
        self.scores: list[TokenLogprob] = []  # of the prompt's tokens from the second on
        self.first_at: float | None = None  # first token
        self.last_at: float | None = None  # latest token
        self.detok_s = 0.0
        self.flush_s = 0.0  # longest time that text was held
