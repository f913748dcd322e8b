"""The default model through every door: Python, the command line and HTTP; and what only a real vocabulary can show."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import openai
import pytest
from openai import OpenAI

import camshaft
from camshaft import LLM, SamplingParams

pytestmark = pytest.mark.slow

QUESTION = "What is the capital of France?"
ASKED: list[Any] = [{"role": "user", "content": QUESTION}]
MODEL = "smollm2-135m"
COMMAND = [sys.executable, "-m", "camshaft.cli.entry"]
ENV = os.environ | {"PYTHONPATH": str(Path(camshaft.__file__).parents[1])}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 20},
        "population": {"type": "integer", "maximum": 100_000_000},
        "tags": {"type": "array", "items": {"enum": ["old", "new", "big"]}, "maxItems": 3},
    },
    "required": ["city", "population", "tags"],
    "additionalProperties": False,
}
ARGUMENTS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "get_weather", "parameters": ARGUMENTS}}


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    """A client of a server process whose pool is far smaller than the context."""
    command = [*COMMAND, "serve", "--port", "0", "--kv-memory", "64M"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=ENV) as child:
        assert child.stderr is not None
        try:
            said: list[str] = []
            while not (found := re.search(r"http://127\.0\.0\.1:\d+/v1", "".join(said[-1:]))):
                said.append(child.stderr.readline())
                assert said[-1], said
            with OpenAI(base_url=found[0], api_key="none", max_retries=0, timeout=120) as made:
                yield made
        finally:
            child.terminate()
            rest = child.stderr.read()
    assert child.returncode == 0
    assert "ERROR" not in rest
    assert "Traceback" not in rest


def test_paris_from_python() -> None:
    with LLM(MODEL, kv_memory="64M") as llm:
        (answer,) = llm.chat(ASKED, SamplingParams(temperature=0, max_tokens=16))
    assert "Paris" in answer.text


def test_paris_from_the_command_line() -> None:
    done = subprocess.run([*COMMAND, "run", QUESTION], capture_output=True, text=True, env=ENV, timeout=120)
    assert (done.returncode, "Paris" in done.stdout) == (0, True), done.stderr
    assert "tok/s" in done.stderr


def test_paris_over_http_with_the_same_log_probabilities_streamed_or_not(client: OpenAI) -> None:
    fields: dict[str, Any] = {"model": MODEL, "messages": ASKED, "temperature": 0, "max_tokens": 16, "logprobs": True, "top_logprobs": 3}
    choice = client.chat.completions.create(**fields).choices[0]
    chunks = list(client.chat.completions.create(**fields, stream=True, stream_options={"include_usage": True}))
    parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choice.message.content == "The capital of France is Paris."
    assert "".join(part.delta.content or "" for part in parts) == choice.message.content
    tokens = [t for part in parts if part.logprobs is not None for t in part.logprobs.content or []]
    assert choice.logprobs is not None
    assert tokens == choice.logprobs.content
    assert "".join(t.token for t in tokens) == choice.message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(tokens) + 1  # the token that ends the answer is paid for, and no part of its text


def test_a_schema_is_held_at_any_temperature(client: OpenAI) -> None:
    n_complete = 0
    for seed in range(6):
        answer = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Describe Paris as JSON."}],
            temperature=seed / 4,
            seed=seed,
            max_tokens=300,
            response_format={"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}},
        )
        if answer.choices[0].finish_reason == "stop":
            jsonschema.validate(json.loads(answer.choices[0].message.content or ""), SCHEMA)
            n_complete += 1
    assert n_complete >= 3, "nearly all of the answers ran into max_tokens"


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}], ids=["required", "named"])
def test_a_tool_that_must_be_called_gets_arguments_of_its_schema(client: OpenAI, choice: Any) -> None:
    weather: list[Any] = [{"role": "user", "content": "What is the weather in Paris?"}]
    answer = client.chat.completions.create(
        model=MODEL, messages=weather, temperature=0, max_tokens=200, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False
    )
    calls = answer.choices[0].message.tool_calls
    assert calls
    for call in calls:
        assert call.type == "function"
        assert call.function.name == "get_weather"
        jsonschema.validate(json.loads(call.function.arguments), ARGUMENTS)


def test_four_answers_of_one_seed_differ_and_come_again(client: OpenAI) -> None:
    def four() -> list[str | None]:
        story: list[Any] = [{"role": "user", "content": "Tell me a story."}]
        answer = client.chat.completions.create(model=MODEL, messages=story, temperature=1, max_tokens=24, n=4, seed=7)
        return [choice.message.content for choice in answer.choices]

    first = four()
    assert len(set(first)) == 4
    assert four() == first


@pytest.mark.parametrize("n_words", [3500, 6000, 300_000])
def test_a_prompt_longer_than_the_pool_or_the_context_is_refused(client: OpenAI, n_words: int) -> None:
    with pytest.raises(openai.BadRequestError, match=r"--kv-memory|too long"):
        client.completions.create(model=MODEL, prompt="word " * n_words, max_tokens=8)
    assert client.completions.create(model=MODEL, prompt="word " * 300, max_tokens=8, temperature=0).choices[0].text
