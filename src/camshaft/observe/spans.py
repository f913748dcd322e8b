"""Spans: one trip through a gateway as OpenTelemetry tells it, with the GenAI conventions' names. Plain data; `trace` sends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from camshaft.observe.gateway import FINISHES, LEFT, Trip

Value = str | int | float | tuple[str, ...]
# A request that reached no replica and ended so has spent its time in line.
_WAITED = frozenset(("queue_timeout", "deadline_exceeded", "draining", LEFT))


class Span(NamedTuple):
    """Times are in seconds since the epoch. `error`: how it failed, as `error.type` has it; "" where it did not."""

    name: str
    kind: Literal["server", "internal", "client"]
    began_at: float
    ended_at: float
    attributes: Mapping[str, Value]
    error: str = ""


def spans_of(trip: Trip) -> tuple[Span, ...]:
    """The request at the gateway, then its wait in line and the call upstream, as far as it came: children of the first.

    Nothing that was said is in them: no message, no answer, no key.
    """
    ended_at = trip.arrived_at + trip.e2e_s
    failed = "" if trip.ending in FINISHES or trip.ending == LEFT else trip.ending
    name = f"{trip.operation} {trip.model}"
    found = [Span(name, "server", trip.arrived_at, ended_at, _common(trip) | _outcome(trip, trip.ttft_s) | _own(trip), failed)]
    if not trip.replica:
        if trip.ending in _WAITED:
            found.append(Span("queue", "internal", trip.arrived_at, ended_at, _line(trip), failed))
        return tuple(found)
    sent_at = trip.arrived_at + min(trip.queue_s, trip.e2e_s)
    ttft_s = max(0.0, trip.ttft_s - trip.queue_s) if trip.ttft_s else 0.0
    place = {"camshaft.version": trip.version, "camshaft.replica": trip.replica}
    if trip.begun:
        found.append(Span("queue", "internal", trip.arrived_at, sent_at, _line(trip)))
    found.append(Span(name, "client", sent_at, ended_at, _common(trip) | _outcome(trip, ttft_s) | place, failed))
    return tuple(found)


def _common(trip: Trip) -> dict[str, Value]:
    """Known before anything was asked."""
    found: dict[str, Value] = {
        "gen_ai.operation.name": trip.operation,
        "gen_ai.provider.name": trip.provider,
        "gen_ai.request.model": trip.model,
        "gen_ai.response.id": trip.request_id,
    }
    if trip.n_choices > 1:
        found["gen_ai.request.choice.count"] = trip.n_choices
    return found


def _outcome(trip: Trip, ttft_s: float) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if trip.replica and trip.begun:
        found["gen_ai.response.model"] = trip.model
        found["gen_ai.usage.input_tokens"] = trip.n_prompt
        found["gen_ai.usage.cache_read.input_tokens"] = trip.n_cached
        found["gen_ai.usage.output_tokens"] = trip.n_output
    if trip.ending in FINISHES:
        found["gen_ai.response.finish_reasons"] = (trip.ending,)
    if ttft_s:
        found["gen_ai.response.time_to_first_chunk"] = round(ttft_s, 6)
    return found


def _own(trip: Trip) -> dict[str, Value]:
    """What the conventions have no name for."""
    found: dict[str, Value] = {
        "camshaft.version": trip.version,
        "camshaft.class": trip.rank,
        "camshaft.tries": trip.n_tries,
        "camshaft.ending": trip.ending,
        "camshaft.queue_s": round(trip.queue_s, 6),
    }
    return found | {f"camshaft.{name}": value for name, value in (("replica", trip.replica), ("tenant", trip.tenant)) if value}


def _line(trip: Trip) -> dict[str, Value]:
    found: dict[str, Value] = {"camshaft.version": trip.version, "camshaft.class": trip.rank}
    return found | ({"camshaft.tenant": trip.tenant} if trip.tenant else {})
