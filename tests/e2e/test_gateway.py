"""A gateway as a process with replicas as processes: what clients see of it while replicas die, files change and it goes away itself."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import pytest
from openai import OpenAI

from camshaft.bench.gateway_process import GatewayProcess, gateway
from camshaft.bench.processes import await_end
from camshaft.bench.sse_client import post
from camshaft.bench.transcript import Transcript, transcript
from gguf_writer import Tiny, tiny_model

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string", "maxLength": 40}}, "required": ["a", "b"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
KINDS: tuple[dict[str, object], ...] = (
    {"temperature": 0, "ignore_eos": True},
    {"temperature": 1.0, "ignore_eos": True, "presence_penalty": 0.5},
    {"temperature": 1.0, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}},
    {"temperature": 1.0, "tools": [TOOL], "tool_choice": "required"},
    {"temperature": 1.0, "n": 2, "ignore_eos": True},
    {"temperature": 1.0, "logprobs": True, "top_logprobs": 2, "ignore_eos": True},
)
FILE = """
[models.tiny]
aliases = ["gpt-4o-mini"]
[models.tiny.versions.v1]
source = "{model}"
replicas = 3
settings = {{ threads = 1, max_num_seqs = 4, max_num_batched_tokens = 64, weight_cache_gb = 0.0 }}
life = {{ stall_s = 5.0, backoff_first_s = 0.05, steady_s = 0.2, crash_row = 1000, crash_most = 1000 }}
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    shape = Tiny(n_layers=6, d_model=256, n_heads=8, n_kv_heads=4, head_dim=32, d_ff=512, context=1024, weights="Q8_0")
    return FILE.format(model=tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", shape))


@pytest.fixture(scope="module")
def process(text: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    with gateway(tmp_path_factory.mktemp("gateway"), text, 3) as running:
        yield running


async def told(process: GatewayProcess, number: int) -> Transcript:
    fields = KINDS[number % len(KINDS)]
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"hello {number}"}],
        "seed": number,
        "max_tokens": 300,
        "stream": True,
    }
    whole = json.dumps({**body, **fields, "stream_options": {"include_usage": True}}).encode()
    reply = await post(process.target, "/v1/chat/completions", whole, deadline_s=60.0)
    assert reply.status == 200, reply.body
    return transcript(event.data for event in reply.events)


async def test_replicas_that_are_killed_are_not_noticed(process: GatewayProcess) -> None:
    """Text, tool arguments, log-probabilities, reasons and counts are those of an undisturbed run (gateway failures, rows 14, 15)."""
    n = 12
    right = [await told(process, i) for i in range(n)]
    assert all(answer.whole for answer in right)
    dice = random.Random(1)
    over = False

    async def repeat(number: int) -> int:
        done = 0
        while not over:
            assert await told(process, number) == right[number]
            done += 1
        return done

    clients = [asyncio.ensure_future(repeat(i)) for i in range(n)]
    for _ in range(6):
        await asyncio.sleep(0.7)
        os.kill(dice.choice(process.workers()), signal.SIGKILL)
    over = True
    assert min(await asyncio.gather(*clients)) >= 1
    moved = [event for event in process.ask("GET", "/v1/events")["events"] if event["kind"] == "stream.moved"]
    assert moved
    process.await_ready(3)
    assert busy(process) == 0


async def test_one_that_neither_dies_nor_answers_is_replaced(process: GatewayProcess) -> None:
    right = await told(process, 0)
    victim = process.workers()[0]
    os.kill(victim, signal.SIGSTOP)
    answers = await asyncio.gather(*(told(process, 0) for _ in range(8)))
    assert all(answer == right for answer in answers)
    assert not await asyncio.to_thread(await_end, [victim], 20.0)
    process.await_ready(3)
    assert busy(process) == 0


def test_the_official_client_works_unchanged(process: GatewayProcess) -> None:
    client = OpenAI(base_url=f"http://127.0.0.1:{process.port}/v1", api_key="none")
    assert [model.id for model in client.models.list()] == ["tiny"]
    answer = client.chat.completions.create(model="gpt-4o-mini", messages=[{"role": "user", "content": "hello"}], max_tokens=5, seed=1)
    assert answer.model == "tiny"
    assert answer.usage is not None
    assert answer.usage.completion_tokens <= 5
    raw = client.chat.completions.with_raw_response.create(model="tiny", messages=[{"role": "user", "content": "hello"}], max_tokens=5)
    assert raw.headers["x-camshaft-version"] == "v1"
    assert raw.headers["x-camshaft-replica"].startswith("tiny/v1-")
    chunks = list(client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}], max_tokens=5, stream=True))
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


async def test_a_file_that_changes_loses_nothing_and_a_bad_one_changes_nothing(process: GatewayProcess, text: str) -> None:
    right = [await told(process, i) for i in range(4)]
    revision = process.ask("GET", "/v1/fleet")["revision"]
    answering = [asyncio.ensure_future(told(process, i)) for i in range(4) for _ in range(3)]
    process.write(text.replace("max_num_seqs = 4", "max_num_seqs = 3"))
    await asyncio.to_thread(process.ask, "POST", "/v1/reload", {})
    answers = await asyncio.gather(*answering)
    assert answers == [right[i] for i in range(4) for _ in range(3)]
    process.write(text + "\nnonsense = 1\n")
    with pytest.raises(urllib.error.HTTPError) as refused:
        process.ask("POST", "/v1/reload", {})
    assert refused.value.code == 400
    assert process.ask("GET", "/v1/fleet")["revision"] == revision + 1
    process.ask("POST", "/v1/rollback", {})
    process.write(text)
    assert process.ask("GET", "/v1/fleet")["revision"] == revision + 2
    process.await_ready(3)
    assert await told(process, 0) == right[0]


def test_nothing_outlives_a_gateway(text: str, tmp_path: Path) -> None:
    """Neither a clean end, after which counters and shares are what they were, nor kill -9 leaves a process."""
    running = GatewayProcess(tmp_path, text)
    running.start()
    try:
        running.await_ready(3)
        running.ask("POST", "/v1/weights", {"model": "tiny", "weights": {"v1": 7}})
        workers = running.workers()
        running.stop()
        assert not await_end(workers, 10.0)
        running.start()
        assert running.ask("GET", "/v1/fleet")["models"][0]["versions"][0]["weight"] == 7
        running.await_ready(3)
        workers = running.workers()
        running.kill()
        assert not await_end(workers, 10.0)
        assert not running.leftovers()
    finally:
        running.kill()


def busy(process: GatewayProcess) -> int:
    """Everything that is counted as in line or in flight."""
    versions = [version for model in process.ask("GET", "/v1/fleet")["models"] for version in model["versions"]]
    flying = sum(r["running"] + r["tokens_in_flight"] for v in versions for r in v["replicas"])
    return int(sum(v["queued"] + v["queued_tokens"] for v in versions) + flying)
