"""Traces: what a request's spans say, whose trace they go on with, and that a dead collector costs nothing."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from camshaft.errors import ConfigError
from camshaft.observe import trace
from camshaft.observe.gateway import Trip
from camshaft.observe.spans import Span, spans_of

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRIP = Trip(
    model="small",
    version="v2",
    replica="small/v2-1",
    tenant="ann",
    request_id="chatcmpl-1",
    operation="chat",
    arrived_at=1_000.0,
    queue_s=0.5,
    ttft_s=0.75,
    e2e_s=2.0,
    n_prompt=100,
    n_cached=64,
    n_output=11,
    ending="stop",
    n_tries=2,
    trace=f"00-{TRACE}-{PARENT}-01",
    rank=1,
)


def test_a_request_is_three_spans_with_the_conventions_names() -> None:
    gateway, queue, call = spans_of(TRIP)
    assert (gateway.name, gateway.kind, gateway.began_at, gateway.ended_at) == ("chat small", "server", 1_000.0, 1_002.0)
    assert gateway.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "camshaft",
        "gen_ai.request.model": "small",
        "gen_ai.response.model": "small",
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.response.time_to_first_chunk": 0.75,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 64,
        "gen_ai.usage.output_tokens": 11,
        "camshaft.version": "v2",
        "camshaft.replica": "small/v2-1",
        "camshaft.tenant": "ann",
        "camshaft.class": 1,
        "camshaft.tries": 2,
        "camshaft.ending": "stop",
        "camshaft.queue_s": 0.5,
    }
    assert (queue.name, queue.kind, queue.began_at, queue.ended_at) == ("queue", "internal", 1_000.0, 1_000.5)
    assert (call.name, call.kind, call.began_at, call.ended_at) == ("chat small", "client", 1_000.5, 1_002.0)
    assert call.attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert not any(span.error for span in (gateway, queue, call))


@pytest.mark.parametrize(
    ("ending", "replica", "names", "error"),
    [
        ("replica_lost", "small/v2-1", ["chat small", "queue", "chat small"], "replica_lost"),
        ("left", "small/v2-1", ["chat small", "queue", "chat small"], ""),
        ("queue_timeout", "", ["chat small", "queue"], "queue_timeout"),
        ("left", "", ["chat small", "queue"], ""),
        ("rate_limit_exceeded", "", ["chat small"], "rate_limit_exceeded"),
    ],
)
def test_a_request_that_went_wrong_says_how_and_how_far_it_came(ending: str, replica: str, names: list[str], error: str) -> None:
    found = spans_of(TRIP._replace(ending=ending, replica=replica, ttft_s=0.0))
    assert [span.name for span in found] == names
    assert found[0].error == error
    assert all(span.ended_at >= span.began_at and "gen_ai.response.finish_reasons" not in span.attributes for span in found)
    assert ("gen_ai.usage.input_tokens" in found[0].attributes) == bool(replica)


def test_a_replica_that_never_took_it_up_has_a_span_and_no_counts() -> None:
    gateway, call = spans_of(TRIP._replace(ending="replica_lost", begun=False, queue_s=0.0, ttft_s=0.0))
    assert (call.kind, call.error, call.attributes["camshaft.replica"]) == ("client", "replica_lost", "small/v2-1")
    assert not any(name.startswith("gen_ai.usage") for span in (gateway, call) for name in span.attributes)


def test_a_wait_longer_than_the_whole_is_cut() -> None:
    assert all(isinstance(s, Span) and s.ended_at >= s.began_at for s in spans_of(TRIP._replace(queue_s=9.0)))


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]], threading.Event]]:
    """An OTLP/HTTP endpoint: its address, what came, and when something did."""
    heard: list[tuple[str, bytes]] = []
    came = threading.Event()

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()
            came.set()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", heard, came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_spans_reach_a_collector_within_the_callers_trace() -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    with collector() as (address, heard, came):
        tracing = trace.tracing_to(address, "9.9")
        tracing.ended(TRIP)
        tracing.ended(TRIP._replace(trace="", ending="engine_fault"))
        tracing.ended(TRIP._replace(trace=f"00-{TRACE}-{PARENT}-00"))  # the caller keeps no trace of this one
        tracing.close()
        assert came.wait(30)  # closing waits for a bounded time only
        tracing.close()
    assert {path for path, _ in heard} == {"/v1/traces"}
    got = [ExportTraceServiceRequest.FromString(body).resource_spans[0] for _, body in heard]
    resource = {pair.key: pair.value.string_value for pair in got[0].resource.attributes}
    assert (resource["service.name"], resource["service.version"]) == ("camshaft", "9.9")
    spans = [span for one in got for scope in one.scope_spans for span in scope.spans]
    mine = [span for span in spans if span.trace_id.hex() == TRACE]
    gateway = next(span for span in mine if span.parent_span_id.hex() == PARENT)
    assert (gateway.name, gateway.start_time_unix_nano, gateway.end_time_unix_nano) == ("chat small", 1_000 * 10**9, 1_002 * 10**9)
    assert sorted(span.name for span in mine if span.parent_span_id == gateway.span_id) == ["chat small", "queue"]
    others = [span for span in spans if span.trace_id.hex() != TRACE]
    assert len(mine) == len(others) == 3
    assert len({span.trace_id for span in others}) == 1
    root = next(span for span in others if not span.parent_span_id)
    assert {pair.key: pair.value.string_value for pair in root.attributes}["error.type"] == "engine_fault"
    assert root.status.code == 2


@pytest.mark.parametrize("caller", [f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00", "nonsense", ""])
def test_what_the_server_behind_is_told_is_the_span_of_the_call_upstream(caller: str) -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace.export")
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    tracing = trace.OtelTracing(sdk.SimpleSpanProcessor(kept))
    onward = [tracing.onward(caller) for _ in range(2)]
    for told in onward:
        tracing.ended(TRIP._replace(trace=caller, onward=told))
    tracing.close()
    version, trace_id, span_id, flags = onward[0].split("-")
    assert version == "00"
    assert span_id not in (PARENT, onward[1].split("-")[2])
    assert (trace_id == TRACE) == (TRACE in caller)
    assert flags == ("00" if caller.endswith("-00") else "01")
    if flags == "00":
        assert not kept.get_finished_spans()
        return
    gateway, queue, call = [span.context for span in kept.get_finished_spans()[:3]]
    assert (f"{call.trace_id:032x}", f"{call.span_id:016x}") == (trace_id, span_id)
    assert len({gateway.span_id, queue.span_id, call.span_id}) == 3
    assert {gateway.trace_id, queue.trace_id} == {call.trace_id}


async def test_a_dead_collector_costs_nothing_and_holds_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full queue drops; the end comes though the exporter never does."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace.export")
    stuck, never = threading.Event(), threading.Event()

    class Dead(sdk.SpanExporter):  # type: ignore[misc, name-defined]
        def export(self, spans: object) -> object:
            stuck.set()
            never.wait()
            return sdk.SpanExportResult.FAILURE

        def shutdown(self) -> None:
            pass

    monkeypatch.setattr(trace, "CLOSE_S", 0.05)
    tracing = trace.OtelTracing(sdk.BatchSpanProcessor(Dead(), max_queue_size=64, max_export_batch_size=8))
    for _ in range(200):
        tracing.ended(TRIP)
    assert await asyncio.to_thread(stuck.wait, 10.0)
    tracing.close()
    assert not never.is_set()  # it closed all the same
    never.set()


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("collector:4317", "http://127.0.0.1:4318"),
        ("grpc://collector:4317", "http://127.0.0.1:4318"),
        ("http://ann:sesame@collector/v1/traces", "OTEL_EXPORTER_OTLP_HEADERS"),
    ],
)
def test_an_address_that_cannot_be_names_the_way_out(endpoint: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        trace.tracing_to(endpoint)
    assert said in caught.value.message
    assert "sesame" not in caught.value.message


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    assert isinstance(trace.tracing_to(""), trace.NoTracing)
    assert trace.NoTracing().onward(TRIP.trace) == TRIP.trace
    with pytest.raises(ConfigError, match=r"pip install camshaft\[otel\]"):
        trace.tracing_to("http://127.0.0.1:4318")


def test_the_core_imports_none_of_it() -> None:
    code = "import sys, camshaft.cli.gateway; sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
