"""The official OpenAI client against a real server and a real engine; only the arithmetic is fake."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import openai
import pytest
from openai import OpenAI

from http_server import Running, server
from served_fake import FakeService

LONG = b"The quick brown fox jumps over the lazy dog. " * 8
CALL = b'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'
TOOLS: list[dict[str, object]] = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


def reply(prompt: bytes) -> bytes | None:
    if b"tool" in prompt:
        return CALL
    if b"long" in prompt:
        return LONG
    return "Grüße, 🙂!".encode() if b"greet" in prompt else b"Paris."


@pytest.fixture(scope="module")
def service() -> FakeService:
    return FakeService(reply, token_s=0.001)


@pytest.fixture(scope="module")
def running(service: FakeService) -> Iterator[Running]:
    with server(lambda: service.app, close=service.engine.close) as found:
        yield found


@pytest.fixture
def client(running: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=20) as found:
        yield found


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def settled(service: FakeService) -> None:
    """Nothing runs any more and every block is back."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        health = service.engine.engine.health()
        if health.running == health.waiting == 0:
            break
        time.sleep(0.005)
    service.engine.engine.check()
    assert service.app.edge.n_inside == 0


def test_the_client_lists_models(client: OpenAI) -> None:
    assert [m.id for m in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").object == "model"


def test_an_answer_and_a_stream_say_the_same(client: OpenAI) -> None:
    whole = client.chat.completions.create(model="fake", messages=user("greet"), temperature=0)  # type: ignore[arg-type]
    assert whole.choices[0].message.content == "Grüße, 🙂!"
    assert whole.choices[0].finish_reason == "stop"
    assert whole.usage is not None
    stream = client.chat.completions.create(
        model="fake",
        messages=user("greet"),  # type: ignore[arg-type]
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Grüße, 🙂!"
    assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens_details is not None


def test_choices_logprobs_and_limits(client: OpenAI) -> None:
    answer = client.chat.completions.create(
        model="fake",
        messages=user("greet"),  # type: ignore[arg-type]
        n=3,
        logprobs=True,
        top_logprobs=2,
        max_completion_tokens=4,
    )
    assert [c.index for c in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert choice.finish_reason == "length"
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert bytes(b for t in choice.logprobs.content for b in t.bytes or ()) == "Grü".encode()


def test_a_stop_string_over_several_tokens_is_never_shown(client: OpenAI) -> None:
    answer = client.chat.completions.create(model="fake", messages=user("long"), stop="brown")  # type: ignore[arg-type]
    assert answer.choices[0].message.content == "The quick "
    stream = client.chat.completions.create(model="fake", messages=user("long"), stop="brown", stream=True)  # type: ignore[arg-type]
    assert "".join(c.choices[0].delta.content or "" for c in stream) == "The quick "


def test_streamed_tool_calls_add_up(client: OpenAI) -> None:
    stream = client.chat.completions.create(model="fake", messages=user("tool"), tools=TOOLS, stream=True)  # type: ignore[call-overload]
    name = arguments = ""
    reasons = []
    for chunk in stream:
        choice = chunk.choices[0]
        reasons.append(choice.finish_reason)
        for call in choice.delta.tool_calls or ():
            name += call.function.name or ""
            arguments += call.function.arguments
    assert (name, json.loads(arguments), reasons[-1]) == ("weather", {"city": "Paris"}, "tool_calls")


def test_completions_echo_and_score(client: OpenAI) -> None:
    scored = client.completions.create(model="fake", prompt="abc", echo=True, logprobs=1, max_tokens=0)
    assert scored.choices[0].text == "abc"
    log = scored.choices[0].logprobs
    assert log is not None
    assert log.tokens == ["a", "b", "c"]
    assert log.token_logprobs is not None
    assert log.token_logprobs[0] is None
    assert all(p is not None for p in log.token_logprobs[1:])
    assert log.text_offset == [0, 1, 2]
    several = client.completions.create(model="fake", prompt=["x", "long"], max_tokens=9)
    assert [c.text for c in several.choices] == ["Paris.", "The quick"]


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"model": "none"}, openai.NotFoundError),
        ({"temperature": -1}, openai.BadRequestError),
        ({"messages": []}, openai.BadRequestError),
        ({"max_tokens": 10**6, "messages": user("x" * 600)}, openai.BadRequestError),
        ({"extra_body": {"structured_outputs": {"regex": "("}}}, openai.BadRequestError),
        ({"extra_body": {"nonsense": 1}}, openai.BadRequestError),
    ],
)
def test_errors_are_the_clients_own_exceptions(
    client: OpenAI, service: FakeService, fields: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        client.chat.completions.create(**({"model": "fake", "messages": user("hi")} | fields))  # type: ignore[call-overload]
    settled(service)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_what_it_held(running: Running, service: FakeService, stream: bool) -> None:
    body = json.dumps({"messages": user("long"), "stream": stream, "ignore_eos": True, "max_tokens": 400}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    with socket.create_connection(running.target[:2]) as leaver:
        leaver.sendall(head + body)
        until = time.monotonic() + 5
        while service.engine.engine.health().running == 0 and time.monotonic() < until:
            time.sleep(0.001)
        assert service.engine.engine.health().running == 1
    began = time.monotonic()
    settled(service)
    assert time.monotonic() - began < 5


def test_health_answers_while_a_huge_text_is_split_into_tokens(
    client: OpenAI, running: Running, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = service.codec.encode
    begun, answered = threading.Event(), threading.Event()

    def slow(text: str, add_special_tokens: bool = True) -> list[int]:
        begun.set()
        assert answered.wait(10), "a blocked event loop does not answer before the text is done"
        return encode(text, add_special_tokens=add_special_tokens)

    monkeypatch.setattr(service.codec, "encode", slow)
    big = json.dumps({"prompt": "x" * 500_000}).encode()
    statuses: list[int] = []
    thread = threading.Thread(target=lambda: statuses.append(client._client.post(running.url + "/tokenize", content=big).status_code))
    with OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=5) as other:
        thread.start()
        assert begun.wait(10)
        assert other._client.get(running.url + "/health").status_code == 200
    answered.set()
    thread.join(10)
    assert statuses == [200]


def test_a_drain_ends_streams_that_outlast_it_with_an_error() -> None:
    service = FakeService(reply, token_s=0.02)
    with server(lambda: service.app, drain_s=0.2, close=service.engine.close) as running:
        client = OpenAI(base_url=running.url + "/v1", api_key="none", max_retries=0, timeout=20)
        stream = client.chat.completions.create(model="fake", messages=user("long"), stream=True)  # type: ignore[arg-type]
        next(stream)
        running.begin_stop()
        with pytest.raises(openai.APIError, match="shut down"):
            for _ in stream:
                pass
        client.close()


def test_the_engines_numbers_are_exported(client: OpenAI, running: Running) -> None:
    client.chat.completions.create(model="fake", messages=user("greet"))  # type: ignore[arg-type]
    text = client._client.get(running.url + "/metrics").text
    for stage in ("encode", "queue", "prefill", "decode", "detokenise", "flush", "send"):
        line = next(x for x in text.splitlines() if x.startswith("camshaft_request_stage_seconds_count") and f'stage="{stage}"' in x)
        assert float(line.split()[-1]) > 0, stage
