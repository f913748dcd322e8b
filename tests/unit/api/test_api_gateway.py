"""What a gateway's clients may do, what they use, and what is kept from them: over a whole gateway with pretended replicas."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api_doubles import CHAT_PATH, TEXT_PATH, chunks_of, client_of
from camshaft.observe.gateway import Trip
from camshaft.observe.log import JsonFormatter
from edge_rig import Rig, digest, edge, model
from gateway_rig import Mortal, until

ANN, BOB, NEW = "sk-ann-0001", "sk-bob-0002", "sk-ann-0003"
LIMITED = "limits = {{ tokens_per_minute = {tokens} }}"
ASK = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0, "seed": 1, "ignore_eos": True}
N_PROMPT = len("user: hi\nassistant:")


def tenants(ann: str = ANN, limits: str = "") -> str:
    return f'[tenants.ann]\nkeys = ["{digest(ann)}"]\n{limits}\n[tenants.bob]\nkeys = ["{digest(BOB)}"]\n'


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with edge(model("a") + tenants(), tmp_path, monkeypatch) as made:
        yield made


async def ask(rig: Rig, key: str = ANN, n: int = 4, **more: object) -> httpx.Response:
    async with rig.client(key) as client:
        return await client.post(CHAT_PATH, json={**ASK, "max_tokens": n, **more})


# ----------------------------------------------------------------------------------------------------------------- limits


async def test_requests_at_once_reserve_no_more_than_the_bucket_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five at once under 100 tokens a minute: those let in reserve 100 at most, the others hear when (gateway failures, row 8)."""
    text = model("a") + tenants(limits=LIMITED.format(tokens=100))
    async with edge(text, tmp_path, monkeypatch) as rig:
        n_output = 40 - N_PROMPT
        replies = await asyncio.gather(*(ask(rig, n=n_output, user=f"u{i}") for i in range(5)))
        good = [reply for reply in replies if reply.status_code == 200]
        assert len(good) == 2
        assert sum(reply.json()["usage"]["total_tokens"] for reply in good) == 80
        refused = [reply for reply in replies if reply.status_code == 429]
        assert len(refused) == 3
        for reply in refused:
            assert reply.json()["error"]["code"] == "rate_limit_exceeded"
            assert reply.headers["x-ratelimit-limit-tokens"] == "100"
            # 20 tokens are lacking, at 100 a minute; whoever comes later waits for those before too.
            assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert (await ask(rig, BOB)).status_code == 200


async def test_what_never_fits_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """(gateway failures, row 9)"""
    text = model("a") + tenants(limits=LIMITED.format(tokens=100))
    async with edge(text, tmp_path, monkeypatch) as rig:
        reply = await ask(rig, n=101)
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "request_too_large")
        assert "retry-after" not in reply.headers
        assert (await ask(rig, n=10)).status_code == 200


async def test_a_stream_that_asks_for_no_usage_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is charged to its tenant, and what remains shrinks from answer to answer (gateway failures, row 10)."""
    text = model("a") + tenants(limits=LIMITED.format(tokens=1000))
    async with edge(text, tmp_path, monkeypatch) as rig:
        left = []
        for _ in range(3):
            reply = await ask(rig, n=200, stream=True)
            assert all("usage" not in chunk or chunk["usage"] is None for chunk in chunks_of(reply.text))
            left.append(int(reply.headers["x-ratelimit-remaining-tokens"]))
        # 16 tokens come back each second; 219 were taken.
        assert left[0] - 100 > left[1] > left[2] + 100
        assert "x-ratelimit-remaining-tokens" not in (await ask(rig, BOB)).headers
        total = f'camshaft_gateway_tokens_total{{model_name="a",version="v1",kind="output"}} {3 * 200 + 4}'
        assert total in await metrics(rig)
        page = await operators_metrics(rig)
        assert total in page
        assert 'camshaft_gateway_tenant_tokens_total{tenant="ann"} ' in page


async def metrics(rig: Rig) -> str:
    async with rig.client(ANN) as client:
        return (await client.get("/metrics")).text


async def operators_metrics(rig: Rig) -> str:
    token = rig.gateway.folder.token("read")
    async with client_of(rig.gateway.control_app(), {"authorization": f"Bearer {token}"}) as client:
        return (await client.get("/metrics")).text


async def test_what_a_tenant_uses_is_shown_to_operators_alone(rig: Rig) -> None:
    for key in (ANN, BOB):
        assert (await ask(rig, key)).status_code == 200
    assert 'tenant="bob"' not in await metrics(rig)
    page = await operators_metrics(rig)
    assert 'camshaft_gateway_tenant_tokens_total{tenant="bob"}' in page
    families = [family.name for family in text_string_to_metric_families(page)]
    assert len(families) == len(set(families))


# ------------------------------------------------------------------------------------------------------------ bad requests


async def test_bad_requests_open_no_breaker(rig: Rig) -> None:
    """Not in JSON, too long, with a grammar that is none: whoever comes next is answered (gateway failures, row 3)."""
    async with rig.client(ANN) as client:
        for body in (b"{", json.dumps({**ASK, "max_tokens": -1}).encode()):
            for _ in range(5):
                assert (await client.post(CHAT_PATH, content=body)).status_code == 400
    for wrong in ({"messages": [{"role": "user", "content": "x" * 2000}]}, {"structured_outputs": {"grammar": "start: ("}}):
        for _ in range(5):
            assert (await ask(rig, **wrong)).status_code == 400
    version = rig.version("a")
    now = rig.gateway._clock.now()
    assert version.router.version.state(now) == "closed"
    assert [version.router.breaker_state(replica.name, now) for replica in version.pool.replicas] == ["closed"]
    assert (await ask(rig)).status_code == 200


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
@pytest.mark.parametrize("body", [{}, {"model": "a"}, {"model": "a", "input": "embed me"}, [], None])
async def test_a_body_without_a_prompt_is_refused(rig: Rig, path: str, body: object) -> None:
    """(gateway failures, row 7)"""
    async with asyncio.timeout(10), rig.client(ANN) as client:
        reply = await client.post(path, json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"


async def test_bodies_and_headers_have_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "[gateway]\nmax_body_bytes = 65536\n" + model("a") + tenants()
    async with edge(text, tmp_path, monkeypatch) as rig:
        reply = await ask(rig, messages=[{"role": "user", "content": "x" * 70_000}])
        assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")
        async with rig.client("k" * 100_000) as client:
            assert (await client.post(CHAT_PATH, json=ASK)).status_code == 401
        async with rig.client(ANN) as client:
            # What could be anything names nothing: it is left out.
            odd = {"x-session-id": "s" * 5_000, "x-request-id": "a b\x7f", "traceparent": "t" * 5_000, "x-camshaft-version": "../v2"}
            reply = await client.post(CHAT_PATH, json={**ASK, "max_tokens": 2}, headers=odd)
            assert reply.status_code == 200
            assert len(reply.headers["x-request-id"]) == 24


# ---------------------------------------------------------------------------------------------------------------- tenants


async def test_a_prompt_is_cached_for_its_tenant_alone(rig: Rig) -> None:
    """(gateway failures, row 12)"""

    async def cached(key: str, **more: object) -> int:
        reply = await ask(rig, key, messages=[{"role": "user", "content": "a long story " * 12}], **more)
        assert reply.status_code == 200, reply.text
        found: int = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        return found

    assert await cached(ANN) == 0
    assert await cached(BOB) == 0
    assert await cached(ANN) > 100
    assert await cached(BOB) > 100
    assert await cached(ANN, cache_salt="mine") == 0
    assert await cached(BOB, cache_salt="mine") == 0


async def test_keys_are_rotated_by_a_reload_and_calls_inside_go_on(rig: Rig) -> None:
    gateway = rig.gateway
    running = asyncio.ensure_future(ask(rig, n=300))
    await asyncio.sleep(0)
    path = gateway._source.path
    path.write_text(path.read_text().replace(digest(ANN), digest(NEW)))
    await gateway.admin.reload("test")
    assert (await running).status_code == 200
    assert (await ask(rig, ANN)).status_code == 401
    assert (await ask(rig, NEW)).status_code == 200
    async with rig.client() as client:
        reply = await client.post(CHAT_PATH, json=ASK)
        assert (reply.status_code, reply.headers["www-authenticate"]) == (401, "Bearer")


async def test_keys_are_in_no_log_no_event_no_page_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "sk-outside-0042"
    monkeypatch.setenv("OUTSIDE_KEY", secret)
    text = '[gateway]\nlog_format = "json"\n' + model("a").replace("url = ", 'key_env = "OUTSIDE_KEY"\nurl = ') + tenants()
    with caplog.at_level(logging.DEBUG):
        async with edge(text, tmp_path, monkeypatch) as rig:
            for key in (ANN, "sk-unknown-0077"):
                for path in (CHAT_PATH, TEXT_PATH):
                    async with rig.client(key) as client:
                        await client.post(path, json={**ASK, "prompt": "hi"})
            seen = [
                await metrics(rig),
                await operators_metrics(rig),
                repr(await rig.gateway.operator.status()),
                repr(rig.gateway.fleet.spec),
            ]
            rig.gateway._snapshot()
            path = rig.gateway._source.path
            path.write_text(path.read_text().replace("[models.a]", "[models.a]\naliases = 7"))
            with pytest.raises(Exception, match="aliases"):
                await rig.gateway.admin.reload("test")
            events, _ = await rig.gateway.admin.events(0.0, 1e12, 1000)
            assert len(events) > 3
            seen.append(repr(events))
    seen += [caplog.text, *(JsonFormatter().format(record) for record in caplog.records)]
    kept = contents(tmp_path)
    for key in (ANN, BOB, secret, "sk-unknown-0077"):
        assert not any(key in text for text in seen)
        assert key.encode() not in kept
    assert digest(ANN) not in "".join(seen)


def contents(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


# --------------------------------------------------------------------------------------------------------- the access log


async def test_one_line_tells_all_of_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    async with edge(model("a") + tenants(), tmp_path, monkeypatch, lambda spec: Mortal(token_s=0.01)) as rig, rig.client(ANN) as client:
        with caplog.at_level(logging.INFO, "camshaft.access"):
            reply = await client.post(CHAT_PATH, json={**ASK, "max_tokens": 8}, headers={"x-request-id": "mine-7"})
    assert reply.headers["x-request-id"] == "mine-7"
    (record,) = [record for record in caplog.records if record.name == "camshaft.access"]
    line = json.loads(JsonFormatter().format(record))
    assert line["id"] == "mine-7"
    assert line["answer"] == reply.json()["id"]
    assert (line["tenant"], line["model"], line["version"], line["status"]) == ("ann", "a", "v1", 200)
    assert line["replica"].startswith("a/v1")
    assert (line["prompt"], line["cached"], line["output"], line["finish"]) == (N_PROMPT, 0, 8, "length")
    assert line["queue_ms"] <= line["ttft_ms"] <= line["ms"]
    assert {"at", "level", "logger", "method", "path", "ms", "queue_ms", "ttft_ms", "tpot_ms", "n", "stream"} <= set(line)
    text = record.getMessage()
    for part in ("id=mine-7 ", "tenant=ann ", f"prompt={N_PROMPT} ", "cached=0 ", "output=8 ", "version=v1 ", "queue_ms=", "tpot_ms="):
        assert part in text + " "
    assert "tries" not in line  # said where there was more than one


@pytest.mark.parametrize("traced", [False, True])
async def test_a_replica_is_told_of_our_call_where_we_trace_and_of_the_callers_where_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: bool
) -> None:
    if traced:
        pytest.importorskip("opentelemetry.sdk")
        monkeypatch.setattr("camshaft.observe.trace.CLOSE_S", 0.01)  # nobody collects there
    backend = Mortal()
    text = ('[gateway]\notlp_endpoint = "http://127.0.0.1:9"\n' if traced else "") + model("a") + tenants()
    async with edge(text, tmp_path, monkeypatch, lambda spec: backend) as rig:
        caller = f"00-{'4b' * 16}-{'07' * 8}-01"
        async with rig.client(ANN) as client:
            assert (await client.post(CHAT_PATH, json={**ASK, "max_tokens": 2}, headers={"traceparent": caller})).status_code == 200
    (asked,) = backend.asked
    assert (asked.trace == caller) != traced
    assert asked.trace.startswith(f"00-{'4b' * 16}-")


async def test_a_stream_that_moved_is_logged_with_where_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made: list[Mortal] = []

    def make(spec: object) -> Mortal:
        made.append(Mortal(token_s=0.01))
        return made[-1]

    two = model("a").replace("url =", "replicas = 2\nurl =")
    async with edge(two + tenants(), tmp_path, monkeypatch, make) as rig:
        with caplog.at_level(logging.INFO, "camshaft.access"):
            answering = asyncio.ensure_future(ask(rig, n=60, stream=True))
            await until(lambda: any(backend.asked for backend in made))
            first = next(i for i, backend in enumerate(made) if backend.asked)
            made[first].die()
            reply = await answering
    assert len(chunks_of(reply.text)) > 3
    (record,) = [record for record in caplog.records if record.name == "camshaft.access"]
    line = json.loads(JsonFormatter().format(record))
    assert (line["tries"], line["output"], line["finish"]) == (2, 60, "length")
    assert line["replica"] == f"a/v1-{2 - first}"


async def test_a_request_that_failed_at_a_replica_is_told_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trips: list[Trip] = []
    async with edge(model("a") + tenants(), tmp_path, monkeypatch) as rig:
        monkeypatch.setattr(rig.gateway.gateway_metrics, "ended", trips.append)
        assert (await ask(rig, structured_outputs={"grammar": "start: ("})).status_code == 400
    assert [(trip.ending, trip.replica, trip.n_tries) for trip in trips] == [("invalid_grammar", "a/v1-1", 1)]


async def test_a_call_that_was_cut_off_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with edge(model("a") + tenants(), tmp_path, monkeypatch, lambda spec: Mortal(token_s=0.02)) as rig:
        with caplog.at_level(logging.INFO, "camshaft.access"):
            reply = await ask(rig, n=490, stream=True, timeout=1.0)
    assert "deadline_exceeded" in reply.text
    (record,) = [record for record in caplog.records if record.name == "camshaft.access"]
    line = json.loads(JsonFormatter().format(record))
    assert (line["prompt"], line["status"], line["error"]) == (N_PROMPT, 200, "deadline_exceeded")
    assert 0 < line["output"] < 490
