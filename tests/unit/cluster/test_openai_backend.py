"""A server of another make as a Backend: its streams, and every way for them to go wrong."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from camshaft.bench.fake_openai import Play
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.outside import warm
from camshaft.errors import ConfigError, Unavailable
from camshaft.types import ErrorInfo, Failed, Finished, Started, TextPrompt, Usage
from foreign_rig import asking, events_of, rig, text_of

KEY = "sk-very-secret"


async def error_of(play: Play, config: ForeignConfig | None = None, deadline_s: float | None = 20.0) -> ErrorInfo:
    async with rig(config=config) as r:
        events = await events_of(r.backend, asking(play, deadline_s=deadline_s))
        assert sum(isinstance(e, Failed | Finished) for e in events) == 1
        assert isinstance(events[-1], Failed), events
        return events[-1].error


async def test_an_answer_begins_with_its_head_and_ends_with_the_servers_count() -> None:
    async with rig() as r:
        events = await events_of(r.backend, asking())
        assert isinstance(events[0], Started)
        assert text_of(events) == "".join(f" w{i}" for i in range(8))
        assert events[-1] == Finished("length", Usage(2, 0, 8))
        body = r.last_body()
        assert (body["model"], body["stream"], body["stream_options"]) == ("fake", True, {"include_usage": True})
        assert r.server.heads[-1]["x-client-request-id"] == "r1"


async def test_text_prompts_go_to_the_older_api() -> None:
    async with rig() as r:
        request = asking()
        events = await events_of(r.backend, type(request)(id="t", prompt=TextPrompt("one two three"), sampling=request.sampling))
        assert text_of(events) == "".join(f" w{i}" for i in range(8))
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.n_prompt == 3


async def test_connections_are_kept_from_one_answer_to_the_next() -> None:
    async with rig() as r:
        for _ in range(5):
            await events_of(r.backend, asking())
            await asyncio.sleep(0)
        assert r.server.n_connections == 1


async def test_a_server_that_does_not_stream_is_understood() -> None:
    async with rig() as r:
        whole = (
            b'{"choices":[{"index":0,"message":{"role":"assistant","content":"all"},"finish_reason":"stop"}],'
            b'"usage":{"prompt_tokens":3,"completion_tokens":1}}'
        )
        events = await events_of(r.backend, asking(Play(whole=whole.decode())))
        assert text_of(events) == "all"
        assert events[-1] == Finished("stop", Usage(3, 0, 1))


@pytest.mark.parametrize(
    ("status", "code", "ours"),
    [
        (500, "replica_lost", 503),
        (502, "replica_lost", 503),
        (401, "upstream_refused", 503),
        (403, "upstream_refused", 503),
        (404, "unavailable", 503),
        (422, "invalid_request_error", 400),
    ],
)
async def test_statuses_are_told_apart(status: int, code: str, ours: int) -> None:
    error = await error_of(Play(status=status, body='{"error":{"message":"no"}}'))
    assert (error.code, error.status) == (code, ours)


async def test_a_key_that_is_refused_is_the_operators_to_mend_and_not_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_KEY", KEY)
    refused = Play(status=401, body='{"error":{"message":"Incorrect API key provided: sk-..."}}')
    error = await error_of(refused)
    assert "401" in error.message
    assert "Incorrect" not in error.message
    async with rig(refused, access=Access("fake", "FAR_KEY")) as r:
        with pytest.raises(Unavailable, match=r"no token.*environment variable FAR_KEY"):
            await warm(r.remote, 5.0)


async def test_back_pressure_keeps_its_retry_after_and_a_broken_server_has_none() -> None:
    """Back-pressure of a server is told apart from its faults, and its Retry-After is kept (gateway failures, row 5)"""
    full = await error_of(Play(status=429, headers={"retry-after": "7"}))
    loading = await error_of(Play(status=503, headers={"retry-after": "2"}))
    down = await error_of(Play(status=503))
    assert (full.code, full.retry_after_s) == ("overloaded", 7)
    assert (loading.code, loading.retry_after_s) == ("unavailable", 2)
    assert (down.code, down.retry_after_s) == ("unavailable", None)


async def test_a_clients_mistake_comes_back_with_the_servers_words() -> None:
    body = '{"error":{"message":"temperature  must be\\nless","param":"temperature","code":"x"}}'
    error = await error_of(Play(status=400, body=body))
    assert (error.status, error.message, error.param) == (400, "temperature must be less", "temperature")
    long = await error_of(Play(status=400, body='{"error":{"message":"' + "m" * 5000 + '","code":"context_length_exceeded"}}'))
    assert long.code == "context_length_exceeded"
    assert len(long.message) < 600
    typed = await error_of(Play(status=400, body='{"error":{"code":400,"message":"no","type":"exceed_context_size_error"}}'))
    assert typed.code == "context_length_exceeded"
    other = await error_of(Play(status=422, body='{"detail":[{"msg":"bad"}]}'))
    assert "bad" in other.message
    assert (await error_of(Play(status=400, body="no JSON"))).message == "no JSON"
    assert "<" not in (await error_of(Play(status=400, body="<html>"))).message


async def test_a_key_is_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KEY", KEY)
    async with rig(access=Access("fake", "FAKE_KEY")) as r:
        await events_of(r.backend, asking())
        assert r.server.heads[-1]["authorization"] == f"Bearer {KEY}"
        for status in (400, 401, 500):
            body = '{"error":{"message":"Incorrect API key provided: KEY"}}'.replace("KEY", KEY)
            events = await events_of(r.backend, asking(Play(status=status, body=body)))
            assert isinstance(events[-1], Failed)
            assert KEY not in repr(events)
    monkeypatch.delenv("FAKE_KEY")
    with pytest.raises(ConfigError, match="FAKE_KEY"):
        Access("fake", "FAKE_KEY").key()


async def test_a_stream_that_is_cut_fails_before_and_after_its_first_token() -> None:
    for after in (0, 3):
        error = await error_of(Play(cut_after=after))
        assert (error.code, error.status) == ("replica_lost", 503)


async def test_an_error_within_the_stream_ends_it() -> None:
    said = {"error": {"message": "CUDA fell over", "code": 500}}
    error = await error_of(
        Play(raw=('data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n', "data: " + str(said).replace("'", '"') + "\n\n"))
    )
    assert error.code == "replica_lost"
    assert "CUDA" not in error.message
    error = await error_of(Play(raw=('event: error\ndata: {"message":"too long","code":400}\n\n',)))
    assert (error.status, error.message) == (400, "too long")
    error = await error_of(Play(raw=("data: {nonsense\n\n",)))
    assert error.code == "replica_lost"


async def test_silence_and_deadlines_end_a_stream() -> None:
    config = ForeignConfig(first_token_s=0.05, idle_s=0.05)
    assert (await error_of(Play(first_s=30), config)).code == "replica_lost"
    assert (await error_of(Play(stall_after=2), config)).code == "replica_lost"
    assert (await error_of(Play(first_s=30), deadline_s=0.05)).status == 504
    assert (await error_of(Play(stall_after=2), deadline_s=0.05)).status == 504


async def test_nobody_there_is_a_lost_replica() -> None:
    async with rig() as r:
        await r.server.close()
        events = await events_of(r.backend, asking())
        assert isinstance(events[-1], Failed)
        assert events[-1].error.code == "replica_lost"


async def test_leaving_ends_the_work_over_there_and_counters_return() -> None:
    """A client that leaves in mid-stream is forgotten, there and here (gateway failures, row 1)"""
    async with rig() as r:
        stream = r.backend.stream(asking(Play(token_s=0.01, n=1000), sampling=asking().sampling))
        assert isinstance(await anext(stream), Started)
        await anext(stream)
        assert (await r.backend.health()).running == 1
        await stream.aclose()  # type: ignore[attr-defined]
        assert (await r.backend.health()).running == 0
        async with asyncio.timeout(5):
            while r.server.running:  # noqa: ASYNC110 - the server says it in no other way
                await asyncio.sleep(0.001)


async def test_what_is_lost_ends_its_streams_at_once() -> None:
    async with rig() as r:
        task = asyncio.ensure_future(events_of(r.backend, asking(Play(stall_after=1))))
        async with asyncio.timeout(5):
            while not r.server.running:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        r.life.ended.set_result("killed by signal 9")
        events = await task
        assert isinstance(events[-1], Failed)
        assert "killed by signal 9" in events[-1].error.message
        assert await r.backend.lost() == "killed by signal 9"
        late = await events_of(r.backend, asking())
        assert isinstance(late[-1], Failed)
        assert late[-1].error.code == "replica_lost"
        assert not (await r.backend.health()).ready


async def test_usage_is_estimated_where_the_server_does_not_count() -> None:
    """A server that reports no usage is counted all the same (gateway failures, row 10)"""
    async with rig() as r:
        events = await events_of(r.backend, asking(Play(usage=False)))
        assert isinstance(events[-1], Finished)
        assert events[-1].usage.n_output == 8
        assert events[-1].usage.n_prompt > 0


async def test_metrics_are_passed_on() -> None:
    async with rig() as r:
        assert await r.backend.metrics() == b"fake_up 1\n"
        await r.server.close()
        assert await r.backend.metrics() == b""


async def test_the_callers_trace_goes_on_to_the_server() -> None:
    async with rig() as r:
        traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        await events_of(r.backend, msgspec.structs.replace(asking(), trace=traceparent))
        assert r.server.heads[-1]["traceparent"] == traceparent
        await events_of(r.backend, asking())
        assert "traceparent" not in r.server.heads[-1]
