"""What counts as a fault, what as a success, and what as neither."""

from __future__ import annotations

import asyncio

import pytest

from camshaft.errors import (
    BadRequest,
    CamshaftError,
    Cancelled,
    DeadlineExceeded,
    Draining,
    EngineFault,
    Overloaded,
    ReplicaLost,
    Unavailable,
    UpstreamRefused,
)
from camshaft.gateway.outcome import Outcome, of_error, of_event, of_exception
from camshaft.types import Delta, ErrorInfo, Failed, Finished, Started, Usage

FAULT, NEUTRAL, SUCCESS = Outcome.FAULT, Outcome.NEUTRAL, Outcome.SUCCESS


@pytest.mark.parametrize(
    ("error", "outcome", "elsewhere"),
    [
        (BadRequest("bad JSON"), NEUTRAL, False),
        (Cancelled("left"), NEUTRAL, False),
        (DeadlineExceeded("late"), NEUTRAL, False),
        (Overloaded("full", retry_after_s=1.0), NEUTRAL, True),
        (Overloaded("full"), NEUTRAL, True),
        (Unavailable("full", retry_after_s=1.0), NEUTRAL, True),
        (Draining("going"), NEUTRAL, True),
        (Unavailable("broken"), FAULT, True),
        (UpstreamRefused("our key"), FAULT, False),
        (EngineFault("a step failed"), FAULT, True),
        (ReplicaLost("no first token within 30 s"), FAULT, True),
        (ReplicaLost("cut", retry_after_s=1.0), FAULT, True),
        (CamshaftError("bug"), FAULT, True),
    ],
)
def test_errors_are_told_apart(error: CamshaftError, outcome: Outcome, elsewhere: bool) -> None:
    for verdict in (of_error(error.info()), of_event(Failed(error.info())), of_exception(error)):
        assert (verdict.outcome, verdict.elsewhere) == (outcome, elsewhere)


@pytest.mark.parametrize(
    ("status", "outcome"), [(400, NEUTRAL), (401, NEUTRAL), (404, NEUTRAL), (422, NEUTRAL), (500, FAULT), (502, FAULT), (504, FAULT)]
)
def test_foreign_codes_go_by_their_status(status: int, outcome: Outcome) -> None:
    assert of_error(ErrorInfo("whatever", "", status)).outcome is outcome


def test_back_pressure_says_for_how_long() -> None:
    """A replica's 429 counted as its fault, and its Retry-After was forgotten (gateway failures, row 5)."""
    assert of_error(ErrorInfo("overloaded", "", 429, retry_after_s=3.0)).rest_s == 3.0
    assert of_error(ErrorInfo("overloaded", "", 429, retry_after_s=-3.0)).rest_s == 0.0


def test_a_stream_without_an_end_was_cut() -> None:
    assert of_event(Finished("stop", Usage(1, 0, 1))).outcome is SUCCESS
    for event in (Started(1, 0, 0.0), Delta("a", (1,))):
        assert of_event(event).outcome is FAULT


def test_leaving_is_neutral_and_broken_connections_are_not() -> None:
    for left in (None, asyncio.CancelledError(), GeneratorExit()):
        assert of_exception(left).outcome is NEUTRAL
    for broken in (ConnectionResetError(), TimeoutError(), EOFError(), ValueError()):
        assert of_exception(broken).outcome is FAULT
