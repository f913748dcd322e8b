"""Gauges: a fleet at one moment, as Prometheus reads it. Made when somebody asks, so that what is gone is gone from the page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from camshaft.cluster.backend import State
from camshaft.gateway.policy import Candidate
from camshaft.gateway.route import Job
from camshaft.gateway.version import Version

_STATES: tuple[State, ...] = ("starting", "warming", "ready", "draining", "gone")
_OPENNESS = {"closed": 0, "half_open": 1, "open": 2}


def gauges(versions: Sequence[Version], now: float) -> Iterator[str]:
    """Lines of the text format, each family with its head."""
    yield from _head("camshaft_gateway_queued", "Requests that wait in line, by class.")
    for v in versions:
        for rank, n in v.line.depths().items():
            yield f'camshaft_gateway_queued{{{_of(v)},class="{rank}"}} {n}'
    yield from _head("camshaft_gateway_queued_tokens", "Prompt tokens that wait in line.")
    for v in versions:
        yield f"camshaft_gateway_queued_tokens{{{_of(v)}}} {v.line.n_tokens}"
    yield from _head("camshaft_gateway_replicas", "Replicas by state.")
    for v in versions:
        states = [replica.state for replica in v.pool.replicas]
        for state in _STATES:
            yield f'camshaft_gateway_replicas{{{_of(v)},state="{state}"}} {states.count(state)}'
    yield from _head("camshaft_gateway_replicas_wanted", "Replicas that there should be.")
    for v in versions:
        yield f"camshaft_gateway_replicas_wanted{{{_of(v)}}} {v.wanted}"
    yield from _replicas(versions, now)
    yield from _head("camshaft_gateway_version_breaker", "0 closed, 1 half open, 2 open.")
    for v in versions:
        yield f"camshaft_gateway_version_breaker{{{_of(v)}}} {_OPENNESS[v.router.version.state(now)]}"


def _replicas(versions: Sequence[Version], now: float) -> Iterator[str]:
    seen = [(v, candidate) for v in versions for candidate in v.router.candidates(Job(), now)]
    shown: tuple[tuple[str, str, Callable[[Candidate], float]], ...] = (
        ("in_flight", "Requests sent to a replica and not ended.", lambda c: c.n_running),
        ("waiting_tokens", "Prompt tokens sent to a replica and not computed.", lambda c: round(c.n_waiting)),
        ("prefill_tokens_per_second", "Measured speed of a replica.", lambda c: round(c.prefill_per_s, 1)),
        ("decode_tokens_per_second", "Measured speed of a replica, all its streams together.", lambda c: round(c.decode_per_s, 1)),
    )
    for name, doc, value in shown:
        yield from _head(f"camshaft_gateway_replica_{name}", doc)
        for v, candidate in seen:
            yield f'camshaft_gateway_replica_{name}{{{_of(v)},replica="{candidate.name}"}} {value(candidate)}'
    yield from _head("camshaft_gateway_replica_breaker", "0 closed, 1 half open, 2 open.")
    for v, candidate in seen:
        state = _OPENNESS[v.router.breaker_state(candidate.name, now)]
        yield f'camshaft_gateway_replica_breaker{{{_of(v)},replica="{candidate.name}"}} {state}'


def _head(name: str, doc: str) -> tuple[str, str]:
    return f"# HELP {name} {doc}", f"# TYPE {name} gauge"


def _of(version: Version) -> str:
    # Names are checked when the file is read: nothing in them needs an escape.
    return f'model_name="{version.spec.model}",version="{version.spec.name}"'
