"""Real servers as replicas of other makes: our own, over the wire, and llama.cpp's."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import camshaft
from camshaft.cluster.command import Command, CommandLauncher
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.openai import OpenAIBackend
from camshaft.types import ChatPrompt, Delta, Failed, Finished, Grammar, Prompt, Request, SamplingParams, TextPrompt
from contract.upstream_contract import check_all, events_of, until

TESTS = Path(__file__).parents[1]
# Everything but arithmetic: the server, the engine and the fake runner.
PROGRAM = """
import sys
import uvloop
from camshaft.api.server import serve
from camshaft.config import ServerConfig
from served_fake import FakeService

async def main():
    service = FakeService(lambda prompt: None, token_s=0.0005)
    try:
        await serve(service.app, ServerConfig(port=int(sys.argv[1]), drain_s=0))
    finally:
        await service.engine.close()

uvloop.run(main())
"""
LLAMA_SERVER = shutil.which("llama-server")
LLAMA_PYTHON = os.environ.get("CAMSHAFT_TEST_LLAMA_PYTHON", "") or (sys.executable if importlib.util.find_spec("llama_cpp") else "")
LLAMA_MODEL = os.environ.get("CAMSHAFT_TEST_GGUF", "")
CHAT = ChatPrompt(({"role": "user", "content": "Count from one to twenty."},))


@asynccontextmanager
async def started(*argv: str, dialect: str) -> AsyncIterator[OpenAIBackend]:
    path = os.pathsep.join((str(TESTS), str(Path(camshaft.__file__).parents[1])))
    bounds = ReplicaConfig(start_s=300, warm_s=120, close_s=5)
    config = ForeignConfig(dialect=dialect)
    backend = await CommandLauncher(Command(argv, (("PYTHONPATH", path),)), Access(), config, bounds).launch("a", lambda state: None)
    try:
        yield backend
    finally:
        await backend.close()


async def test_our_own_server_keeps_the_contract_over_the_wire() -> None:
    async with started(sys.executable, "-c", PROGRAM, "{port}", dialect="vllm") as backend:
        await check_all(backend)


@pytest.mark.slow
async def test_our_own_server_with_a_model_does_so_too() -> None:
    command = (sys.executable, "-m", "camshaft.cli.main", "serve", "--port", "{port}", "--threads", "1", "--log-level", "warning")
    async with started(*command, dialect="vllm") as backend:
        await check_all(backend)


async def answer(backend: OpenAIBackend, prompt: Prompt, sampling: SamplingParams) -> tuple[str, Finished]:
    events = await events_of(backend, Request(id="r", prompt=prompt, sampling=sampling))
    assert isinstance(events[-1], Finished), events[-1]
    return "".join(e.text for e in events if isinstance(e, Delta)), events[-1]


def llama_command() -> tuple[str, ...]:
    if LLAMA_SERVER is not None:
        return (LLAMA_SERVER, "-m", LLAMA_MODEL, "--host", "{host}", "--port", "{port}", "-t", "1", "-c", "1024")
    return (LLAMA_PYTHON, "-m", "llama_cpp.server", "--model", LLAMA_MODEL, "--host", "{host}", "--port", "{port}", "--n_ctx", "1024")


@pytest.mark.slow
@pytest.mark.skipif(
    not LLAMA_MODEL or not (LLAMA_SERVER or LLAMA_PYTHON),
    reason="needs CAMSHAFT_TEST_GGUF, a chat model's file, and llama-server on PATH or llama-cpp-python[server], here or in "
    "the environment of the Python that CAMSHAFT_TEST_LLAMA_PYTHON names",
)
async def test_llama_cpps_server_answers_as_a_replica() -> None:
    greedy = SamplingParams(temperature=0, max_tokens=24)
    async with started(*llama_command(), dialect="llama.cpp") as backend:
        text, end = await answer(backend, CHAT, greedy)
        assert text
        assert 0 < end.usage.n_output <= 24
        assert end.usage.n_prompt > 5
        assert (await answer(backend, CHAT, greedy))[0] == text
        assert (await answer(backend, TextPrompt("Once upon a time"), greedy))[0]
        shape = Grammar(
            "json_schema", '{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}'
        )
        held, end = await answer(backend, CHAT, SamplingParams(temperature=0, max_tokens=200, grammar=shape))
        if end.reason == "stop":
            assert isinstance(msgspec.json.decode(held)["a"], int)
        long = await events_of(backend, Request(id="r", prompt=TextPrompt("word " * 5000), sampling=greedy))
        assert isinstance(long[-1], Failed)
        assert 400 <= long[-1].error.status < 500 or long[-1].error.code == "replica_lost"
        stream = backend.stream(Request(id="r", prompt=CHAT, sampling=SamplingParams(temperature=0, max_tokens=900)))
        for _ in range(3):
            await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
        await until(backend, lambda health: health.running == 0)
        async with asyncio.timeout(60):
            assert (await answer(backend, CHAT, greedy))[0] == text
