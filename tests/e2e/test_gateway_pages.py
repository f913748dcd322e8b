"""A gateway as a process, with tenants: its metrics, its log, its traces, and what each tenant's cache is to the others."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from camshaft.bench.gateway_process import GatewayProcess, gateway
from camshaft.gateway.folder import read_token
from gguf_writer import Tiny, tiny_model

KEYS = {"ann": "sk-ann-planted-0001", "bob": "sk-bob-planted-0002"}
SAID = "an unmistakable sentence"
FILE = """
log_format = "json"
log_level = "debug"
otlp_endpoint = "{collector}"
[models.tiny.versions.v1]
source = "{model}"
replicas = 2
settings = {{ threads = 1, max_num_seqs = 4, block_size = 16, weight_cache_gb = 0.0 }}
life = {{ stall_s = 60.0 }}
"""


class Collector:
    """An OTLP/HTTP endpoint that keeps what it is sent."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        bodies = self.bodies

        class Listener(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Listener)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def process(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    path = tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", Tiny(context=512))
    tenants = [f'[tenants.{name}]\nkeys = ["sha256:{hashlib.sha256(key.encode()).hexdigest()}"]\n' for name, key in KEYS.items()]
    text = FILE.format(model=path, collector=collector.url) + "".join(tenants)
    with gateway(tmp_path_factory.mktemp("gateway"), text, 2) as running:
        yield running


def ask(process: GatewayProcess, tenant: str, headers: dict[str, str] | None = None, **more: object) -> httpx.Response:
    body = {"model": "tiny", "messages": [{"role": "user", "content": SAID * 4}], "max_tokens": 6, "seed": 1, "ignore_eos": True, **more}
    given = {"authorization": f"Bearer {KEYS[tenant]}", **(headers or {})}
    return httpx.post(f"http://127.0.0.1:{process.port}/v1/chat/completions", json=body, headers=given, timeout=60.0)


def metrics(process: GatewayProcess) -> str:
    token = read_token(process.state / "read.token")
    address = f"http://127.0.0.1:{process.admin_port}/metrics"
    reply = httpx.get(address, headers={"authorization": f"Bearer {token}"}, timeout=60.0)
    assert reply.status_code == 200
    return reply.text


def access_lines(process: GatewayProcess) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["logger"] == "camshaft.access" and line["path"].startswith("/v1/chat")]


def test_a_prompt_is_cached_for_its_tenant_alone(process: GatewayProcess) -> None:
    """Over real engines: the second tenant finds nothing, the first finds its own again (gateway failures, row 12)."""

    def cached(tenant: str) -> int:
        reply = ask(process, tenant)
        assert reply.status_code == 200, reply.text
        found: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert cached("ann") == 0
    assert cached("bob") == 0
    assert cached("ann") > 0
    assert cached("bob") > 0


def test_all_numbers_stand_on_one_page_that_parses(process: GatewayProcess) -> None:
    ask(process, "ann")
    page = metrics(process)
    families = {}
    for family in text_string_to_metric_families(page):
        assert family.name not in families
        families[family.name] = family
    heads = [line.split()[2] for line in page.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads))
    replicas = {sample.labels.get("replica") for sample in families["camshaft_num_requests_running"].samples}
    assert {"tiny/v1-1", "tiny/v1-2"} <= replicas
    assert any(sample.value for sample in families["camshaft_gateway_requests"].samples)


def test_a_replica_that_stands_still_holds_the_page_up_for_a_bounded_time(process: GatewayProcess) -> None:
    victim = process.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    try:
        began = time.monotonic()
        page = metrics(process)
        assert time.monotonic() - began < 15.0  # a deadline, not a speed
    finally:
        os.kill(victim, signal.SIGCONT)
    found = {sample.labels["replica"] for f in text_string_to_metric_families(page) for sample in f.samples if "replica" in sample.labels}
    assert found  # the other one is on it
    process.await_ready(2)


def test_a_call_is_one_line_with_its_id_its_way_its_tokens_and_its_times(process: GatewayProcess) -> None:
    reply = ask(process, "bob", {"x-request-id": "mine-42"})
    assert reply.headers["x-request-id"] == "mine-42"
    (line,) = [line for line in access_lines(process) if line["id"] == "mine-42"]
    usage = reply.json()["usage"]
    assert (line["prompt"], line["output"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert line["cached"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert (line["tenant"], line["version"], line["answer"]) == ("bob", "v1", reply.json()["id"])
    assert line["replica"] == reply.headers["x-camshaft-replica"]
    assert line["queue_ms"] <= line["ttft_ms"] <= line["ms"]


def test_traces_go_on_with_the_callers_and_hold_nothing_that_was_said(process: GatewayProcess, collector: Collector) -> None:
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    assert ask(process, "ann", {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}).status_code == 200
    until = time.monotonic() + 30
    while not any(bytes.fromhex(trace) in body for body in collector.bodies) and time.monotonic() < until:
        time.sleep(0.1)
    body = next(body for body in collector.bodies if bytes.fromhex(trace) in body)
    for name in (b"gen_ai.usage.input_tokens", b"camshaft.replica", b"tiny/v1-", b"queue"):
        assert name in body
    everything = b"".join(collector.bodies)
    assert SAID.encode() not in everything
    assert b"sk-" not in everything


def test_no_key_and_nothing_that_was_said_is_kept_or_shown(process: GatewayProcess) -> None:
    ask(process, "ann", max_tokens=-1)
    httpx.post(f"http://127.0.0.1:{process.port}/v1/chat/completions", headers={"authorization": "Bearer sk-planted-wrong"}, timeout=60.0)
    seen = [metrics(process), process.log.read_text(), *(json.dumps(process.ask("GET", f"/v1/{page}")) for page in ("fleet", "events"))]
    files = [file.read_bytes() for file in contents(process.state)]
    tokens = [read_token(process.state / name) for name in ("admin.token", "read.token")]
    for secret in (*KEYS.values(), "sk-planted-wrong", SAID):
        assert not any(secret in text for text in seen)
        assert not any(secret.encode() in data for data in files)
    for token in tokens:
        assert not any(token in text for text in seen)


def contents(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]
