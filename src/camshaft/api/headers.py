"""What an answer's head says of the way that it took."""

from __future__ import annotations

from camshaft.api.call import Call
from camshaft.api.edge import Edge
from camshaft.types import Event, Started


def headers(edge: Edge, call: Call, first: Event) -> dict[bytes, bytes]:
    """From a call's first event; the log line has the same. Empty where there is but one engine."""
    shown = dict(edge.directory.headers(call.tenant))
    route = first.route if isinstance(first, Started) else None
    if route is not None:
        tries = route.n_tries if route.n_tries > 1 else ""
        for name, value in (("version", route.version), ("replica", route.replica), ("tries", tries)):
            if value:
                shown[b"x-camshaft-" + name.encode()] = str(value).encode()
                call.notes[name] = value
    if call.passed:
        answered = call.notes["model"]
        shown[b"x-camshaft-fallback"] = f"{','.join(call.passed)} -> {answered}".encode()
    return shown
