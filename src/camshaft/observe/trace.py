"""Trace: spans on their way to a collector, by OpenTelemetry's SDK, which comes with the extra `otel`. Only `trace_ids` touches it too."""

from __future__ import annotations

import importlib.util
import threading
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from camshaft.errors import ConfigError
from camshaft.observe.gateway import Trip
from camshaft.observe.spans import spans_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

MAX_WAITING = 8_192  # spans that wait for the collector; beyond it the oldest are dropped
_BATCH = 512
_SEND_S = 5.0  # for one batch to be taken, tries included
CLOSE_S = 5.0
_NS = 1_000_000_000


class Tracing(Protocol):
    """Whoever turns trips into traces."""

    def onward(self, trace: str) -> str:
        """The traceparent for who is asked on behalf of a request that came with `trace`; the trip says at its end which it was."""
        ...

    def ended(self, trip: Trip) -> None:
        """A request is over. Neither waits nor fails."""
        ...

    def close(self) -> None:
        """What waits is sent, within a bound. Blocks so long."""
        ...


class NoTracing:
    """Implements Tracing where nobody wants to know."""

    def onward(self, trace: str) -> str:
        return trace

    def ended(self, trip: Trip) -> None:
        pass

    def close(self) -> None:
        pass


class OtelTracing:
    """Implements Tracing. A trace that the caller began is continued, and its word on sampling is obeyed.

    Which share of the others is kept, and what the collector is told of this service, OpenTelemetry's own variables say
    (OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_EXPORTER_OTLP_HEADERS).
    """

    def __init__(self, processor: SpanProcessor, version: str = "") -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.sampling import Decision
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        from camshaft.observe.trace_ids import ChosenIds

        resource = Resource.create({"service.name": "camshaft", "service.version": version})
        self._ids = ChosenIds()
        # Ended by `close`, which has a bound; the SDK's own hook at exit would wait for half a minute.
        provider = TracerProvider(resource=resource, shutdown_on_exit=False, id_generator=self._ids)
        provider.add_span_processor(processor)
        kinds = trace.SpanKind
        self._provider = provider
        self._tracer = provider.get_tracer("camshaft", version)
        self._propagator = TraceContextTextMapPropagator()
        self._kinds = {"server": kinds.SERVER, "internal": kinds.INTERNAL, "client": kinds.CLIENT}
        self._failed = trace.Status(trace.StatusCode.ERROR)
        self._within = trace.set_span_in_context
        self._span_of = trace.get_current_span
        self._sampled = Decision.RECORD_AND_SAMPLE

    def onward(self, trace: str) -> str:
        """Spans are made when all is known of them, at the end. What another server is told of one is chosen here."""
        parent = self._propagator.extract({"traceparent": trace})
        caller = self._span_of(parent).get_span_context()
        trace_id = caller.trace_id if caller.is_valid else self._ids.generate_trace_id()
        sampled = self._provider.sampler.should_sample(parent, trace_id, "").decision is self._sampled
        return f"00-{trace_id:032x}-{self._ids.generate_span_id():016x}-{sampled:02x}"

    def ended(self, trip: Trip) -> None:
        parent = self._propagator.extract({"traceparent": trip.trace}) if trip.trace else None
        told = trip.onward.split("-")
        first = None
        for span in spans_of(trip):
            if trip.onward:
                self._ids.trace_id, self._ids.span_id = int(told[1], 16), int(told[2], 16) if span.kind == "client" else 0
            began = self._tracer.start_span(
                span.name,
                context=parent if first is None else self._within(first),
                kind=self._kinds[span.kind],
                attributes=span.attributes,
                start_time=int(span.began_at * _NS),
            )
            if span.error:
                began.set_attribute("error.type", span.error)
                began.set_status(self._failed)
            began.end(int(span.ended_at * _NS))
            first = first or began
        self._ids.trace_id = self._ids.span_id = 0

    def close(self) -> None:
        # A collector that does not answer must not hold the process: the thread is left to itself then, and ends with it.
        ending = threading.Thread(target=self._provider.shutdown, name="camshaft-trace", daemon=True)
        ending.start()
        ending.join(CLOSE_S)


def wrong_with(endpoint: str) -> str:
    """Why spans cannot go there; "" where they can, or where there is no such wish."""
    if not endpoint:
        return ""
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "takes the whole address of a collector's OTLP/HTTP port, such as http://127.0.0.1:4318/v1/traces"
    if parts.username or parts.password:
        return "holds a password; put it into OTEL_EXPORTER_OTLP_HEADERS, which no log and no page shows"
    if not _is_installed():
        return "needs OpenTelemetry, which is not installed: pip install camshaft[otel]"
    return ""


def _is_installed() -> bool:
    try:
        return all(importlib.util.find_spec(f"opentelemetry.{part}") is not None for part in ("sdk.trace", "exporter.otlp.proto.http"))
    except ModuleNotFoundError:  # one of the packages above them is missing
        return False


def tracing_to(endpoint: str, version: str = "") -> Tracing:
    """`endpoint`: a collector's OTLP/HTTP address; "" traces nothing. Raises ConfigError where the extra is missing."""
    if problem := wrong_with(endpoint):
        raise ConfigError(f"otlp_endpoint {problem}")
    if not endpoint:
        return NoTracing()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    path = urlsplit(endpoint).path.strip("/")
    exporter = OTLPSpanExporter(endpoint if path else endpoint.rstrip("/") + "/v1/traces", timeout=_SEND_S)
    return OtelTracing(BatchSpanProcessor(exporter, max_queue_size=MAX_WAITING, max_export_batch_size=_BATCH), version)
