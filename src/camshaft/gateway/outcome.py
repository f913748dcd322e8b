"""Outcome: what a try says about the one that was asked. Faults are its own; a client's error or back-pressure is nobody's."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NamedTuple

from camshaft.errors import CamshaftError, Cancelled, DeadlineExceeded, Draining, ReplicaLost, UpstreamRefused
from camshaft.types import ErrorInfo, Event, Failed, Finished

_LOST = ReplicaLost.code
_REFUSED = UpstreamRefused.code
_LEFT = (Cancelled.code, DeadlineExceeded.code)  # the client's own wish and the client's own bound
_GOING = Draining.code


class Outcome(Enum):
    SUCCESS = "success"
    FAULT = "fault"
    NEUTRAL = "neutral"


class Verdict(NamedTuple):
    """`elsewhere`: another replica may well answer this request. `rest_s`: how long the one asked wants to be left alone."""

    outcome: Outcome
    elsewhere: bool = False
    rest_s: float = 0.0


def of_error(error: ErrorInfo) -> Verdict:
    """Connect errors, cut streams and stalls come as replica_lost. A 503 that names a time to come back is back-pressure."""
    rest_s = max(0.0, error.retry_after_s or 0.0)
    if error.code in _LEFT:
        return Verdict(Outcome.NEUTRAL)
    if error.code == _REFUSED:
        # Every replica of the version has the same key.
        return Verdict(Outcome.FAULT)
    if error.code == _LOST:
        return Verdict(Outcome.FAULT, elsewhere=True)
    if error.code == _GOING or error.status == 429:
        return Verdict(Outcome.NEUTRAL, elsewhere=True, rest_s=rest_s)
    if error.status == 503 and error.retry_after_s is not None:
        return Verdict(Outcome.NEUTRAL, elsewhere=True, rest_s=rest_s)
    if error.status >= 500:
        return Verdict(Outcome.FAULT, elsewhere=True)
    return Verdict(Outcome.NEUTRAL)


def of_event(event: Event) -> Verdict:
    """Of the last event of a stream. One that is not terminal says that the stream was cut."""
    if isinstance(event, Finished):
        return Verdict(Outcome.SUCCESS)
    if isinstance(event, Failed):
        return of_error(event.error)
    return Verdict(Outcome.FAULT, elsewhere=True)


def of_exception(error: BaseException | None) -> Verdict:
    """Of what ended a try from outside. None, a cancellation and a closed generator are the client's leaving."""
    if isinstance(error, CamshaftError):
        return of_error(error.info())
    if error is None or isinstance(error, asyncio.CancelledError | GeneratorExit | KeyboardInterrupt):
        return Verdict(Outcome.NEUTRAL)
    return Verdict(Outcome.FAULT, elsewhere=True)
