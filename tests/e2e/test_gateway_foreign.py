"""A whole gateway before servers of another make, as the official OpenAI client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from camshaft.bench.fake_openai import Asked, FakeOpenAI, Play
from camshaft.cli.gateway import Source, opened
from camshaft.gateway.file import parse

HI: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
APART = Play(
    deltas=(
        {"delta": {"role": "assistant", "reasoning_content": "Hm."}},
        {"delta": {"content": "Let me look."}},
        {"delta": {"tool_calls": [{"index": 0, "id": "x", "type": "function", "function": {"name": "weather", "arguments": '{"city":'}}]}},
        {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": '"Paris"}'}}]}},
    ),
    finish="tool_calls",
)


@asynccontextmanager
async def gateway(folder: Path, fake: FakeOpenAI, replicas: int = 2) -> AsyncIterator[AsyncOpenAI]:
    """A fleet of one model, whose replicas are all the fake server."""
    text = f"""
        [gateway]
        port = 0
        admin_port = 0
        state_dir = "{folder / "state"}"
        [models.theirs.versions.v1]
        engine = "openai"
        url = "{fake.url}"
        replicas = {replicas}
    """
    file = folder / "fleet.toml"
    file.write_text(text)
    async with opened(Source(file, text, parse(text, file))) as running:
        ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        serving = asyncio.ensure_future(running.serve(lambda where: ready.set_result(running.operator.address)))
        # What the servers play next is for clients; replicas warm up by what they played until now.
        assert {await r.settled() for version in running.fleet.versions for r in version.pool.replicas} == {"ready"}
        client = AsyncOpenAI(base_url=f"{await ready}/v1", api_key="none", max_retries=0)
        try:
            yield client
        finally:
            await client.close()
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


@asynccontextmanager
async def fakes(tmp_path: Path, script: Callable[[Asked], Play]) -> AsyncIterator[tuple[FakeOpenAI, AsyncOpenAI]]:
    fake = FakeOpenAI()
    await fake.start()
    try:
        async with gateway(tmp_path, fake) as client:
            fake.script = script
            yield fake, client
    finally:
        await fake.close()


async def read(client: AsyncOpenAI, into: list[str]) -> None:
    async for chunk in await client.chat.completions.create(model="theirs", messages=HI, stream=True):
        into.append(chunk.choices[0].delta.content or "")


async def test_reasoning_and_tool_calls_come_through(tmp_path: Path) -> None:
    async with fakes(tmp_path, lambda asked: APART) as (fake, client):
        whole = await client.chat.completions.create(model="theirs", messages=HI)
        choice = whole.choices[0]
        assert choice.finish_reason == "tool_calls"
        assert choice.message.tool_calls is not None
        (call,) = choice.message.tool_calls
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Paris"}')
        assert choice.message.content == "Let me look."
        assert choice.message.model_extra == {"reasoning_content": "Hm."}
        arguments = ""
        async for chunk in await client.chat.completions.create(model="theirs", messages=HI, stream=True):
            for piece in chunk.choices[0].delta.tool_calls or ():
                assert piece.function is not None
                arguments += piece.function.arguments or ""
        assert arguments == '{"city":"Paris"}'
        assert fake.running == 0


async def test_a_stream_that_dies_before_its_first_byte_is_tried_again_and_later_ends_with_an_error(tmp_path: Path) -> None:
    """A server of another make dies before the first token, and after some (gateway failures, row 14)"""
    plays: list[Play] = []
    async with fakes(tmp_path, lambda asked: plays.pop(0) if plays else Play(n=4)) as (_, client):
        plays.append(Play(cut_after=0, n=4))
        raw = await client.chat.completions.with_raw_response.create(model="theirs", messages=HI)
        answer = raw.parse()
        assert answer.choices[0].message.content == " w0 w1 w2 w3"
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4
        assert not plays
        plays.append(Play(cut_after=2, n=4))
        texts: list[str] = []
        with pytest.raises(openai.APIError) as caught:
            await read(client, texts)
        assert "".join(texts) == " w0 w1"
        assert caught.value.code == "replica_lost"


async def test_a_clients_mistake_and_back_pressure_keep_their_status(tmp_path: Path) -> None:
    mistake = Play(status=400, body='{"error":{"message":"no such thing","param":"seed"}}')
    plays: list[Play] = []
    async with fakes(tmp_path, lambda asked: plays[0]) as (_, client):
        plays.append(mistake)
        for _ in range(6):
            with pytest.raises(openai.BadRequestError, match="no such thing"):
                await client.chat.completions.create(model="theirs", messages=HI)
        plays[0] = Play(n=2)
        assert (await client.chat.completions.create(model="theirs", messages=HI)).choices[0].message.content == " w0 w1"
