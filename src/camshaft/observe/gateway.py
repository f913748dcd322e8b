"""What a gateway counts beside its replicas: requests by version and how they ended, waits, paces, tokens, moves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from camshaft.errors import CODES
from camshaft.observe.instruments import Family, Histogram, Value, counter, histogram

_WAIT = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 60)
_TPOT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5)
FINISHES = frozenset(("stop", "length", "content_filter"))
LEFT = "left"  # how a request ends whose client went away
MAX_TENANTS = 200  # with series of their own; the others share one


class Trip(NamedTuple):
    """One request's way through a gateway, told once at its end. Seconds; 0 for what it never reached."""

    model: str
    version: str
    replica: str
    tenant: str
    request_id: str
    operation: str  # chat or text_completion, as OpenTelemetry calls them
    arrived_at: float  # since the epoch
    queue_s: float
    ttft_s: float  # from arrival to the first token
    e2e_s: float
    n_prompt: int
    n_cached: int
    n_output: int
    ending: str  # stop, length, or an error's code; "left" where the client did
    n_tries: int = 1
    n_choices: int = 1
    trace: str = ""  # the caller's traceparent
    onward: str = ""  # the one that its replica was told, of its own call upstream; "" where nobody traces
    provider: str = "camshaft"  # who makes the engine
    rank: int = 0  # its class
    begun: bool = True  # its replica took it up, so that the times and counts up to there are known

    @property
    def tpot_s(self) -> float:
        """Per output token after the first."""
        return (self.e2e_s - self.ttft_s) / (self.n_output - 1) if self.n_output > 1 and self.ttft_s else 0.0


class GatewayMetrics:
    """Families of one gateway. `gauges` are read when somebody asks, because replicas come and go with their names."""

    def __init__(self, gauges: Callable[[], Iterable[str]] = lambda: ()) -> None:
        version = ("model_name", "version")
        self._gauges = gauges
        self._requests = counter(
            "camshaft_gateway_requests_total", "Requests by how they ended: a finish reason or an error's code.", (*version, "ending")
        )
        self._tokens = counter(
            "camshaft_gateway_tokens_total", "Tokens of requests that ended: prompt, cached (of the prompt) and output.", (*version, "kind")
        )
        self._tenant = counter(
            "camshaft_gateway_tenant_tokens_total", "Computed tokens by tenant: prompt without cached, and output.", ("tenant",)
        )
        self._moves = counter(
            "camshaft_gateway_streams_moved_total", "Streams whose replica was lost after their first token.", (*version, "moved")
        )
        self._tries = counter("camshaft_gateway_tries_total", "Replicas asked, the first of each request included.", version)
        self._queue = histogram("camshaft_gateway_queue_seconds", "From arrival to a replica.", _WAIT, version)
        self._ttft = histogram("camshaft_gateway_time_to_first_token_seconds", "From arrival to the first token.", _TTFT, version)
        self._tpot = histogram(
            "camshaft_gateway_time_per_output_token_seconds", "Mean of an answer's tokens after the first.", _TPOT, version
        )

    @property
    def families(self) -> tuple[Family[Value] | Family[Histogram], ...]:
        return (self._requests, self._tokens, self._tenant, self._moves, self._tries, self._queue, self._ttft, self._tpot)

    def ended(self, trip: Trip) -> None:
        """A request is over, whatever way."""
        version = (trip.model, trip.version)
        known = trip.ending in CODES or trip.ending in FINISHES or trip.ending == LEFT
        # A server of another make may send any code; each would be a series.
        self._requests.child(*version, trip.ending if known else "other").add()
        self._tries.child(*version).add(trip.n_tries)
        for kind, n in (("prompt", trip.n_prompt), ("cached", trip.n_cached), ("output", trip.n_output)):
            self._tokens.child(*version, kind).add(n)
        self._tenant.child(self._tenant_label(trip.tenant)).add(max(0, trip.n_prompt - trip.n_cached) + trip.n_output)
        if trip.replica and trip.begun:
            self._queue.child(*version).observe(trip.queue_s)
        if trip.ttft_s:
            self._ttft.child(*version).observe(trip.ttft_s)
        if trip.tpot_s:
            self._tpot.child(*version).observe(trip.tpot_s)

    def moved(self, model: str, version: str, *, moved: bool) -> None:
        self._moves.child(model, version, "yes" if moved else "no").add()

    def render(self, *, tenants: bool = True) -> bytes:
        """Prometheus text format 0.0.4. `tenants`: with what each of them used, which is not for other tenants to see."""
        lines = [line for family in self.families if tenants or family is not self._tenant for line in family.lines()]
        return ("\n".join([*lines, *self._gauges()]) + "\n").encode()

    def _tenant_label(self, tenant: str) -> str:
        known = {values[0] for values, _ in self._tenant.series()}
        return tenant if tenant in known or len(known) < MAX_TENANTS else "other"
