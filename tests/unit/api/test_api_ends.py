"""How a call ends when it does not end well: clients that leave, streams that break, servers that shut down."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from api_doubles import CHAT_PATH, HI, TEXT_PATH, Asgi, Scripted, app_over, client_of, say, until
from camshaft.api.server import serve
from camshaft.config import ServerConfig
from camshaft.errors import EngineFault, Overloaded
from camshaft.types import Delta, Failed, Request, Started

STARTED = Started(1, 0, 0.0)
FOREVER = 30.0


def body(path: str, *, stream: bool, n: int = 1) -> bytes:
    prompt = HI if path == CHAT_PATH else {"prompt": "x"}
    return json.dumps(prompt | {"stream": stream, "n": n}).encode()


@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
@pytest.mark.parametrize("when", ["queued", "prefill", "decode"])
async def test_a_client_that_leaves_closes_its_upstreams_at_once(path: str, stream: bool, n: int, when: str) -> None:
    script = {"queued": [FOREVER], "prefill": [STARTED, FOREVER], "decode": [STARTED, Delta("a", (1,)), FOREVER]}[when]
    upstream = Scripted(lambda _: script)
    app = app_over(upstream)
    call = Asgi(app, path, [body(path, stream=stream, n=n)])
    running = asyncio.ensure_future(call.run())
    await until(lambda: upstream.open == n)
    await asyncio.sleep(0.01)
    assert not running.done()
    call.leave()
    await asyncio.wait_for(running, 1)
    assert upstream.open == 0
    assert len(upstream.closed_early) == n
    assert app.edge.n_inside == 0


async def test_a_client_that_leaves_while_sending_its_body_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    call = Asgi(app_over(Scripted()), CHAT_PATH, [])
    call.leave()
    with caplog.at_level(logging.WARNING):
        await call.run()
    assert call.sent == []
    assert caplog.records == []


async def test_a_client_that_takes_nothing_is_let_go_when_it_leaves() -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), Delta("b", (2,)), FOREVER])
    call = Asgi(app_over(upstream), CHAT_PATH, [body(CHAT_PATH, stream=True)])
    call.stuck = True
    running = asyncio.ensure_future(call.run())
    await until(lambda: bool(call.sent))
    call.leave()
    await asyncio.wait_for(running, 1)
    assert upstream.open == 0


async def test_a_client_that_neither_takes_nor_leaves_is_ended_by_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camshaft.api.answering.GRACE_S", 0.0)
    monkeypatch.setattr("camshaft.api.failure.FAREWELL_S", 0.05)
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), FOREVER])
    call = Asgi(app_over(upstream), CHAT_PATH, [json.dumps(HI | {"stream": True, "timeout": 0.05}).encode()])
    call.stuck = True
    await asyncio.wait_for(call.run(), 5)
    assert upstream.open == 0


@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
async def test_an_error_in_mid_stream_is_an_error_event_then_done(path: str, raised: bool) -> None:
    error = EngineFault("a step failed")
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), error if raised else Failed(error.info())])
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(path, content=body(path, stream=True))
    assert reply.status_code == 200
    events = reply.text.removesuffix("\n\n").split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert json.loads(events[-2].removeprefix("data: ")) == {
        "error": {"message": "a step failed", "type": "server_error", "param": None, "code": "engine_fault"}
    }
    assert '"finish_reason":"' not in reply.text
    assert sum('"error"' in e for e in events) == 1


async def test_a_bug_in_mid_stream_ends_the_stream_too(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), ZeroDivisionError("secret")])
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, content=body(CHAT_PATH, stream=True))
    assert reply.text.endswith("data: [DONE]\n\n")
    assert '"code":"engine_fault"' in reply.text
    assert "secret" not in reply.text


# ------------------------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_too_large_is_a_413_before_it_is_held(declared: bool) -> None:
    config = ServerConfig(max_body_bytes=100_000)
    parts = [b"x" * 10_000] * 3000
    headers = {"content-length": str(30_000_000)} if declared else {}
    call = Asgi(app_over(Scripted(), config), CHAT_PATH, parts, headers)
    await call.run()
    assert call.status == 413
    assert json.loads(call.body)["error"]["code"] == "body_too_large"
    assert call.n_read <= (0 if declared else 11)


async def test_a_body_at_the_limit_passes_and_is_parsed_off_the_loop() -> None:
    upstream = Scripted()
    padded = json.dumps(HI | {"user": "x" * 70_000}).encode()
    async with client_of(app_over(upstream, ServerConfig(max_body_bytes=len(padded)))) as client:
        assert (await client.post(CHAT_PATH, content=padded)).status_code == 200
        assert (await client.post(CHAT_PATH, content=padded + b" ")).status_code == 413


async def test_a_body_that_never_comes_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("camshaft.api.call.BODY_WAIT_S", 0.02)
    call = Asgi(app_over(Scripted()), CHAT_PATH, [])
    await asyncio.wait_for(call.run(), 5)
    assert call.status == 408


async def test_calls_above_the_limit_are_429_with_retry_after_and_the_rest_go_on() -> None:
    gate = asyncio.Event()

    class Gated(Scripted):
        async def stream(self, request: Request):  # type: ignore[no-untyped-def, override]
            await gate.wait()
            async for event in super().stream(request):
                yield event

    app = app_over(Gated(), ServerConfig(max_concurrent_requests=2))
    async with client_of(app) as client:
        first = [asyncio.ensure_future(client.post(CHAT_PATH, json=HI)) for _ in range(2)]
        await until(lambda: app.edge.n_inside == 2)
        refused = await client.post(CHAT_PATH, json=HI)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == Overloaded.code
        assert (await client.get("/health")).status_code == 200
        gate.set()
        assert [r.status_code for r in await asyncio.gather(*first)] == [200, 200]
        assert (await client.post(CHAT_PATH, json=HI)).status_code == 200


# -------------------------------------------------------------------------------------------------------------- drain


async def test_a_drain_refuses_what_is_new_lets_what_runs_finish_and_turns_not_ready() -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), 0.1, *say("b")[1:]])
    app = app_over(upstream)
    async with client_of(app) as client:
        running = asyncio.ensure_future(client.post(CHAT_PATH, content=body(CHAT_PATH, stream=True)))
        await until(lambda: upstream.open == 1)
        draining = asyncio.ensure_future(app.edge.drain(5.0))
        await asyncio.sleep(0)
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200
        late = await client.post(CHAT_PATH, json=HI)
        assert (late.status_code, late.json()["error"]["code"]) == (503, "draining")
        assert "retry-after" in late.headers
        reply = await running
        await draining
    assert '"finish_reason":"stop"' in reply.text
    assert "error" not in reply.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_drain_that_runs_out_ends_the_rest_with_an_error_of_its_own(stream: bool) -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), FOREVER])
    app = app_over(upstream)
    async with client_of(app) as client:
        running = asyncio.ensure_future(client.post(CHAT_PATH, content=body(CHAT_PATH, stream=stream)))
        await until(lambda: upstream.open == 1)
        await asyncio.wait_for(app.edge.drain(0.01), 1)
        reply = await running
    assert upstream.open == 0
    assert '"code":"draining"' in reply.text
    assert reply.status_code == (200 if stream else 503)
    assert reply.text.endswith("data: [DONE]\n\n") == stream


async def test_a_drain_that_is_hurried_ends_the_rest_like_one_that_runs_out() -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), FOREVER])
    app = app_over(upstream)
    app.edge.hurry()  # nothing drains yet, so nothing happens
    async with client_of(app) as client:
        running = asyncio.ensure_future(client.post(CHAT_PATH, content=body(CHAT_PATH, stream=True)))
        await until(lambda: upstream.open == 1)
        draining = asyncio.ensure_future(app.edge.drain(60.0))
        await asyncio.sleep(0)
        app.edge.hurry()
        await asyncio.wait_for(draining, 5)
        reply = await running
    assert '"code":"draining"' in reply.text
    assert reply.text.endswith("data: [DONE]\n\n")
    assert upstream.open == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_that_the_server_cuts_ends_with_an_error_and_not_with_a_traceback(stream: bool) -> None:
    upstream = Scripted(lambda _: [STARTED, Delta("a", (1,)), FOREVER])
    call = Asgi(app_over(upstream), CHAT_PATH, [body(CHAT_PATH, stream=stream)])
    running = asyncio.ensure_future(call.run())
    await until(lambda: upstream.open == 1)
    await asyncio.sleep(0.01)
    running.cancel()
    await asyncio.wait_for(running, 5)
    assert upstream.open == 0
    assert b'"code":"draining"' in b"".join(message.get("body", b"") for message in call.sent)


# ---------------------------------------------------------------------------------------------------------------- log


async def test_a_call_leaves_one_line_that_nobody_can_forge(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "camshaft.access"):
        async with client_of(app_over(Scripted(lambda _: say("a", n_prompt=64, n_cached=32)))) as client:
            await client.post(CHAT_PATH, json=HI, headers={"x-request-id": "r-1"})
            await client.get("/v1/models/a%22%20id=forged%C2%85")
            await client.get("/health")
    lines = [r.getMessage() for r in caplog.records if r.name == "camshaft.access"]
    assert len(lines) == 2
    wanted = ("id=r-1", "method=POST", f"path={CHAT_PATH}", "status=200", "model=tiny", "prompt=64", "cached=32", "output=1", "finish=stop")
    assert set(wanted) <= set(lines[0].split())
    assert 'path="/v1/models/a\\" id=forged\\u0085"' in lines[1]
    assert "status=404 " in lines[1]
    assert "error=model_not_found" in lines[1]


async def test_a_probe_before_anything_is_ready_is_no_failure_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "camshaft"):
        async with client_of(app_over(Scripted(ready=False))) as client:
            assert (await client.get("/ready")).status_code == 503
    assert caplog.records == []


async def test_a_server_beside_another_ends_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    stop = asyncio.Event()
    with caplog.at_level(logging.INFO, "camshaft.api.server"):
        async with asyncio.timeout(30):
            await serve(app_over(Scripted()), ServerConfig(port=0), lambda address: stop.set(), stop, signals=False)
    assert "draining" not in caplog.text


async def test_answers_are_counted_by_route_and_status_not_by_path() -> None:
    app = app_over(Scripted())
    async with client_of(app) as client:
        for name in ("tiny", "a", "b"):
            await client.get(f"/v1/models/{name}")
        text = (await client.get("/metrics")).text
    assert 'camshaft_http_requests_total{route="/v1/models/{model}",status="404"} 2.0' in text
    assert 'route="/v1/models/a"' not in text
