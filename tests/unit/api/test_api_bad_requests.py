"""Bad input: each gets an error that names the field, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from api_doubles import CHAT_PATH, HI, TEXT_PATH, Scripted, app_over, client_of, say
from camshaft.config import ServerConfig
from camshaft.errors import BadGrammar, BadRequest, CamshaftError, EngineFault, Overloaded, PromptTooLong, Unavailable
from camshaft.types import Failed


async def post(path: str, body: bytes | dict[str, Any], config: ServerConfig | None = None) -> httpx.Response:
    """The answer to a bad request; then a good one must still work."""
    upstream = Scripted()
    async with client_of(app_over(upstream, config or ServerConfig())) as client:
        reply = await client.post(path, content=body if isinstance(body, bytes) else json.dumps(body).encode())
        assert upstream.requests == [], "a bad request reached the engine"
        assert (await client.post(CHAT_PATH, json=HI)).status_code == 200
    return reply


async def refused(path: str, body: bytes | dict[str, Any], status: int = 400, config: ServerConfig | None = None) -> dict[str, Any]:
    reply = await post(path, body, config)
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return dict(error)


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

WRONG_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -1}, "temperature"),
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": 1.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 1.5}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"n": 0}, "n"),
    ({"n": 1_000_000}, "n"),
    ({"n": 10**30}, "n"),
    ({"seed": -1}, "seed"),
    ({"seed": 1 << 63}, "seed"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 1.5}, "max_tokens"),
    ({"min_tokens": -1}, "min_tokens"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a"] * 17}, "stop"),
    ({"stop": "x" * 1025}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop_token_ids": [258]}, "stop_token_ids"),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
    ({"stop_token_ids": [1] * 65}, "stop_token_ids"),
    ({"logit_bias": {"258": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias"),
    ({"logit_bias": {"1": None}}, "logit_bias"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {" 1": 1}}, "logit_bias"),
    ({"logit_bias": {"1_0": 1}}, "logit_bias"),
    ({"logit_bias": {"٣": 1}}, "logit_bias"),
    ({"logit_bias": {"9" * 5000: 1}}, "logit_bias"),
    ({"logit_bias": {str(i): 0 for i in range(1025)}}, "logit_bias"),
    ({"priority": -1}, "priority"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"timeout": 0}, "timeout"),
    ({"user": 5}, "user"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usages": True}}, "stream_options.include_usages"),
    ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, "stream_options.continuous_usage_stats"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"structured_outputs": {}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
    ({"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}}, "structured_outputs"),
]

CHAT_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant", "content": None}]}, "messages[0].content"),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "x", "contents": "y"}]}, "messages[0].contents"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages[0].content[0].type"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 5}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
    ({"modalities": ["audio"]}, "modalities[0]"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
    ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "ab\n"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]}, "tools[0].function.parameters"),
    ({"tools": [{"type": "function", "function": {"name": "f", "parameters": nested(40)}}]}, "tools[0].function.parameters"),
    ({"tools": [TOOL, TOOL]}, "tools[1].function.name"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tool_choice": "auto"}, "tool_choice"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tool_choice": "sometimes", "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}, "tools": [TOOL]}, "tool_choice"),
    ({"tool_choice": "required", "tools": [TOOL], "response_format": {"type": "json_object"}}, "tool_choice"),
]

TEXT_ONLY: list[tuple[dict[str, Any], str]] = [
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [""]}, "prompt[0]"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": None}, "prompt"),
    ({"prompt": {"text": "x"}}, "prompt"),
    ({"prompt": [1, "a"]}, "prompt"),
    ({"prompt": ["a", [1]]}, "prompt"),
    ({"prompt": [1.5]}, "prompt[0]"),
    ({"prompt": [258]}, "prompt"),
    ({"prompt": [1, -1]}, "prompt"),
    ({"prompt": [[1], [10**12]]}, "prompt[1]"),
    ({"prompt": ["a"] * 257}, "prompt"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"best_of": 2}, "best_of"),
    ({"suffix": "x"}, "suffix"),
]


@pytest.mark.parametrize(("fields", "param"), [*WRONG_FIELDS, *CHAT_ONLY])
async def test_a_wrong_chat_field_is_a_400_that_names_it(fields: dict[str, Any], param: str) -> None:
    error = await refused(CHAT_PATH, HI | fields)
    assert error["param"] == param, error
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("fields", "param"), [*WRONG_FIELDS, *TEXT_ONLY])
async def test_a_wrong_completion_field_is_a_400_that_names_it(fields: dict[str, Any], param: str) -> None:
    error = await refused(TEXT_PATH, {"prompt": "x"} | fields)
    assert error["param"] == param, error


@pytest.mark.parametrize(
    ("field", "near"),
    [("temperture", "temperature"), ("max_token", "max_tokens"), ("top-p", "top_p"), ("message", "messages"), ("zzzz", None)],
)
async def test_an_unknown_field_is_named_with_the_nearest_known_one(field: str, near: str | None) -> None:
    error = await refused(CHAT_PATH, HI | {field: 1})
    assert error["param"] == field
    assert f"{field} is not a known field" in error["message"]
    assert ("did you mean" in error["message"]) == (near is not None)
    if near is not None:
        assert repr(near) in error["message"]


@pytest.mark.parametrize(
    "field", ["functions", "function_call", "audio", "web_search_options", "guided_json", "prompt_logprobs", "chat_template"]
)
async def test_a_field_that_others_serve_says_what_to_do_instead(field: str) -> None:
    error = await refused(CHAT_PATH, HI | {field: {}})
    assert error["param"] == field
    assert "is not supported: " in error["message"]


async def test_unknown_fields_can_be_ignored_at_every_depth_but_known_ones_stay_strict() -> None:
    config = ServerConfig(unknown_fields="ignore")
    part = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    body = {"messages": [{"role": "user", "content": [part], "x": 1}], "temperture": 1, "functions": [], "tools": [TOOL | {"y": 2}]}
    upstream = Scripted()
    async with client_of(app_over(upstream, config)) as client:
        reply = await client.post(CHAT_PATH, json=body)
        assert reply.status_code == 200, reply.text
        assert upstream.last.prompt.messages == ({"role": "user", "content": "hi"},)  # type: ignore[union-attr]
        assert upstream.last.prompt.tools[0]["function"]["parameters"] == {"type": "object"}  # type: ignore[union-attr]
        assert (await client.post(CHAT_PATH, json=body | {"temperature": -1})).status_code == 400


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        b'{"messages": [{"role": "user", "content": "hi"}]} trailing',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": Infinity}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": -Infinity}',
        b'{"messages": [{"role": "user", "content": "hi"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\\udc00\\ud800"}]}',
        b'{"messages": [{"role": "user", "content": "\xed\xa0\x80"}]}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"messages": [{"role": "user", "content": "hi"}], "metadata": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
        b"[" * 2_000_000,
    ],
    ids=lambda body: repr(body[:60]),
)
async def test_a_body_that_is_no_valid_json_object_is_a_400(body: bytes) -> None:
    await refused(CHAT_PATH, body)
    await refused(TEXT_PATH, body)
    await refused("/tokenize", body)


@pytest.mark.parametrize("depth", [33, 400, 10_000])
@pytest.mark.parametrize("where", ["response_format", "structured", "string", "tool"])
async def test_a_schema_too_deep_is_a_400(depth: int, where: str) -> None:
    schema = '{"items":' * depth + "{}" + "}" * depth
    quoted = json.dumps(schema)
    extra = {
        "response_format": f'"response_format": {{"type": "json_schema", "json_schema": {{"name": "s", "schema": {schema}}}}}',
        "structured": f'"structured_outputs": {{"json": {schema}}}',
        "string": f'"structured_outputs": {{"json": {quoted}}}',
        "tool": f'"tools": [{{"type": "function", "function": {{"name": "f", "parameters": {schema}}}}}]',
    }[where]
    error = await refused(CHAT_PATH, f'{{"messages": [{{"role": "user", "content": "hi"}}], {extra}}}'.encode())
    assert "nested" in error["message"]


async def test_a_schema_within_the_depth_passes() -> None:
    upstream = Scripted()
    async with client_of(app_over(upstream)) as client:
        fields = {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": nested(15)}}}
        assert (await client.post(CHAT_PATH, json=HI | fields)).status_code == 200


async def test_data_as_deep_as_the_parser_just_takes_is_never_our_fault() -> None:
    async with client_of(app_over(Scripted())) as client:
        for depth in range(900, 1000, 3):
            for field in ("chat_template_kwargs", "metadata"):
                deep = '{"a":' * depth + "1" + "}" * depth
                body = f'{{"messages": [{{"role": "user", "content": "hi"}}], "{field}": {deep}}}'
                assert (await client.post(CHAT_PATH, content=body)).status_code in (200, 400), depth


@pytest.mark.parametrize("fields", [{"tool_choice": "x" * 1_000_000}, {"x" * 1_000_000: 1}, {"response_format": {"type": "x" * 1_000_000}}])
async def test_an_error_does_not_send_megabytes_back(fields: dict[str, Any]) -> None:
    reply = await post(CHAT_PATH, HI | fields)
    assert reply.status_code == 400
    assert len(reply.content) < 2000


async def test_constraints_too_large_to_compile_are_refused_before_anybody_tries() -> None:
    error = await refused(CHAT_PATH, HI | {"structured_outputs": {"regex": "a" * 8193}})
    assert (error["param"], error["code"]) == ("structured_outputs.regex", "invalid_grammar")
    schema = {"enum": ["x" * 100] * 3000}
    error = await refused(CHAT_PATH, HI | {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}})
    assert error["param"] == "response_format.json_schema.schema"
    assert (await refused(CHAT_PATH, HI | {"structured_outputs": {"choice": []}}))["param"] == "structured_outputs.choice"


async def test_an_unknown_model_is_a_404_and_so_is_an_unknown_path() -> None:
    error = await refused(CHAT_PATH, HI | {"model": "tinny"}, 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert "'tiny'" in error["message"]
    for path in ("/v1/responses", CHAT_PATH + "/"):
        assert (await refused(path, {}, 404))["code"] == "not_found"


async def test_a_wrong_method_is_a_405_with_the_right_one() -> None:
    async with client_of(app_over(Scripted())) as client:
        for path, right in ((CHAT_PATH, "POST"), ("/v1/models", "GET"), ("/health", "GET")):
            reply = await client.request("DELETE", path)
            assert reply.status_code == 405
            assert right in reply.headers["allow"]
            assert reply.json()["error"]["code"] == "method_not_allowed"


async def test_a_model_without_a_template_takes_no_chat() -> None:
    async with client_of(app_over(Scripted(), chat=None)) as client:
        reply = await client.post(CHAT_PATH, json=HI)
        assert reply.status_code == 400
        assert "/v1/completions" in reply.json()["error"]["message"]
        assert (await client.post(TEXT_PATH, json={"prompt": "x"})).status_code == 200
        assert (await client.post("/tokenize", json=HI)).status_code == 400


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("raised", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (PromptTooLong("9012 tokens; at most 8192 fit", param="messages"), 400, None),
        (BadGrammar("the regex has an open group", param="response_format"), 400, None),
        (Overloaded("the queue is full", retry_after_s=2.4), 429, "3"),
        (Unavailable("starting", retry_after_s=0.1), 503, "1"),
        (EngineFault("a step failed"), 500, None),
    ],
)
async def test_a_refusal_before_the_first_event_has_its_own_status_even_for_a_stream(
    error: CamshaftError, status: int, retry: str | None, raised: bool, streaming: bool
) -> None:
    upstream = Scripted(lambda _: [error if raised else Failed(error.info())])
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI | {"stream": streaming})
    assert reply.status_code == status
    assert reply.json()["error"]["code"] == error.code
    assert reply.json()["error"]["message"] == error.message
    assert reply.headers.get("retry-after") == retry


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"tools": [TOOL], "tool_choice": "required"}, "tools"),
    ],
)
async def test_a_grammar_that_does_not_compile_names_the_field_it_came_from(fields: dict[str, Any], param: str) -> None:
    upstream = Scripted(lambda _: [Failed(BadGrammar("an open group", param="response_format").info())])
    async with client_of(app_over(upstream)) as client:
        for path, prompt in ((CHAT_PATH, HI), (TEXT_PATH, {"prompt": "x"})):
            if path == TEXT_PATH and "tools" in fields:
                continue
            reply = await client.post(path, json=prompt | fields)
            assert reply.status_code == 400
            assert (reply.json()["error"]["param"], reply.json()["error"]["message"]) == (param, "an open group")


async def test_one_bad_choice_ends_the_call_and_frees_the_others() -> None:
    upstream = Scripted(lambda r: [BadRequest("no")] if r.choice == 1 else [30.0, *say("x")])
    async with client_of(app_over(upstream)) as client:
        assert (await client.post(CHAT_PATH, json=HI | {"n": 3})).status_code == 400
    assert upstream.open == 0


async def test_a_handler_that_breaks_is_a_500_without_its_secrets(caplog: pytest.LogCaptureFixture) -> None:
    upstream = Scripted(lambda _: [ZeroDivisionError("secret")])
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI)
        assert (await client.get("/health")).status_code == 200
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert "secret" in caplog.text


async def test_a_stream_that_just_stops_is_a_fault_not_an_answer() -> None:
    async with client_of(app_over(Scripted(lambda _: say("a")[:-1]))) as client:
        reply = await client.post(CHAT_PATH, json=HI)
    assert reply.status_code == 500
    assert reply.json()["error"]["code"] == "engine_fault"
