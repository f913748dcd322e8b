"""Chat completions: the shape of answers and of streams."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api_doubles import CHAT_PATH, EOS, HI, TEXT_PATH, Scripted, app_over, chunks_of, client_of, say, scored, served
from camshaft.api.app import create_app
from camshaft.api.directory import FixedModels
from camshaft.config import ServerConfig
from camshaft.observe.metrics import Metrics
from camshaft.types import ChatPrompt, Delta, Finished, SamplingParams, Started, TokenLogprob, Usage


async def ask(upstream: Scripted, **fields: Any) -> dict[str, Any]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI | fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def stream(upstream: Scripted, **fields: Any) -> list[dict[str, Any]]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(CHAT_PATH, json=HI | fields | {"stream": True})
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    return chunks_of(reply.text)


async def test_an_answer_has_openais_shape_and_says_who_computed_it() -> None:
    answer = await ask(Scripted(), model="tiny")
    assert answer["object"] == "chat.completion"
    assert answer["id"].startswith("chatcmpl-")
    assert answer["system_fingerprint"] == "fp-test"
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hello world", "refusal": None}, "logprobs": None, "finish_reason": "stop"}
    ]
    assert answer["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 11,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_stream_begins_with_the_role_and_ends_with_an_empty_delta_and_the_reason() -> None:
    chunks = await stream(Scripted())
    choices = [c["choices"][0] for c in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [c["delta"]["content"] for c in choices[1:-1]] == ["Hello", " world"]
    assert choices[-1]["delta"] == {}
    assert [c["finish_reason"] for c in choices] == [None, None, None, "stop"]
    assert len({c["id"] for c in chunks}) == 1
    assert all("usage" not in c for c in chunks)


async def test_usage_comes_last_with_no_choices_and_equals_the_usage_without_streaming() -> None:
    script = Scripted(lambda _: say("a", "b", n_prompt=64, n_cached=32))
    chunks = await stream(script, stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert all(c["usage"] is None for c in chunks[:-1])
    assert chunks[-1]["usage"] == (await ask(script))["usage"]
    assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 32}


async def test_an_answer_without_any_text_still_has_a_role_and_exactly_one_finish() -> None:
    chunks = await stream(Scripted(lambda _: say(reason="length")))
    assert [c["choices"][0]["finish_reason"] for c in chunks] == [None, "length"]
    assert (await ask(Scripted(lambda _: say(reason="length"))))["choices"][0]["message"]["content"] == ""


async def test_text_that_the_engine_holds_back_makes_no_empty_chunk() -> None:
    chunks = await stream(Scripted(lambda _: [Started(1, 0, 0.0), Delta("", (1,)), Delta("é", (2,)), Finished("stop", Usage(1, 0, 2))]))
    assert [c["choices"][0]["delta"].get("content") for c in chunks] == ["", "é", None]


async def test_choices_are_interleaved_under_their_own_index_and_each_finishes_once() -> None:
    def script(request: Any) -> list[Any]:
        return [Started(5, 0, 0.0), Delta(f"<{request.choice}", (1,)), 0.005, Delta(">", (2,)), Finished("stop", Usage(5, 0, 2))]

    upstream = Scripted(script)
    chunks = await stream(upstream, n=3, stream_options={"include_usage": True})
    texts = ["", "", ""]
    finishes = [0, 0, 0]
    order = []
    for choice in (c["choices"][0] for c in chunks[:-1]):
        texts[choice["index"]] += choice["delta"].get("content", "")
        finishes[choice["index"]] += choice["finish_reason"] is not None
        order.append(choice["index"])
    assert texts == ["<0>", "<1>", "<2>"]
    assert finishes == [1, 1, 1]
    assert order != sorted(order), "they ran one after the other"
    assert chunks[-1]["usage"] | {"prompt_tokens_details": None} == {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": None,
    }
    assert [c["message"]["content"] for c in (await ask(upstream, n=3))["choices"]] == ["<0>", "<1>", "<2>"]


async def test_n_becomes_requests_with_one_seed_one_family_and_ids_of_their_own() -> None:
    upstream = Scripted()
    await ask(upstream, n=3)
    assert [r.choice for r in upstream.requests] == [0, 1, 2]
    assert len({r.id for r in upstream.requests}) == 3
    assert len({r.siblings for r in upstream.requests}) == 1
    assert upstream.requests[0].siblings
    assert len({r.sampling.seed for r in upstream.requests}) == 1
    assert upstream.requests[0].sampling.seed is not None


async def test_a_given_seed_is_kept_and_an_absent_one_is_fresh_each_time() -> None:
    upstream = Scripted()
    await ask(upstream, seed=7)
    assert upstream.last.sampling.seed == 7
    await ask(upstream)
    await ask(upstream)
    assert upstream.requests[-1].sampling.seed != upstream.requests[-2].sampling.seed
    assert upstream.last.siblings == ""


async def test_clients_that_repeat_a_request_id_do_not_collide() -> None:
    upstream = Scripted()
    async with client_of(app_over(upstream), {"x-request-id": "same"}) as client:
        replies = [await client.post(CHAT_PATH, json=HI | {"n": 2}) for _ in range(2)]
    assert [r.headers["x-request-id"] for r in replies] == ["same", "same"]
    assert len({r.id for r in upstream.requests}) == 4
    assert len({r.json()["id"] for r in replies}) == 2


async def test_a_request_id_that_is_not_plain_is_replaced() -> None:
    async with client_of(app_over(Scripted())) as client:
        for bad in ("x" * 129, "a b", "a\tb", "é"):
            got = (await client.get("/version", headers={"x-request-id": bad.encode()})).headers["x-request-id"]
            assert got != bad
            assert got.isalnum()


async def test_logprobs_have_bytes_for_tokens_that_are_half_a_character() -> None:
    half, rest = "🙂".encode()[:2], "🙂".encode()[2:]
    entries = (scored(half, -0.25, top=((half, -0.25), (b"x", float("-inf")))), scored(rest, -1.5))
    script = Scripted(lambda _: [Started(1, 0, 0.0), Delta("🙂", (1, 2), entries), Finished("stop", Usage(1, 0, 2))])
    content = (await ask(script, logprobs=True, top_logprobs=2))["choices"][0]["logprobs"]["content"]
    assert [c["bytes"] for c in content] == [list(half), list(rest)]
    assert content[0]["token"] == "bytes:\\xf0\\x9f"
    assert content[0]["logprob"] == -0.25
    assert content[0]["top_logprobs"][1] == {"token": "x", "logprob": -9999.0, "bytes": [120]}
    assert content[1]["top_logprobs"] == []
    chunks = await stream(script, logprobs=True, top_logprobs=2)
    assert [e for c in chunks for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]] == content


async def test_logprobs_of_held_back_text_arrive_once_each() -> None:
    events = [Started(1, 0, 0.0), Delta("", (1,), (scored(b"a"),)), Delta("ab", (2,), (scored(b"b"),)), Finished("stop", Usage(1, 0, 2))]
    chunks = await stream(Scripted(lambda _: events), logprobs=True)
    got = [
        (c["choices"][0]["delta"].get("content"), [t["token"] for t in (c["choices"][0]["logprobs"] or {"content": []})["content"]])
        for c in chunks
    ]
    assert got == [("", []), ("", ["a"]), ("ab", ["b"]), (None, [])]


@pytest.mark.parametrize("path", [CHAT_PATH, TEXT_PATH])
async def test_the_token_that_ended_the_answer_has_no_logprobs_entry_streamed_or_not(path: str) -> None:
    last = TokenLogprob(EOS, b"</s>", -0.1, ends=True)
    events = [Started(1, 0, 0.0), Delta("a", (97, EOS), (scored(b"a", id=97), last)), Finished("stop", Usage(1, 0, 2))]
    for tail in (events, [*events[:1], Delta("a", (97,), (scored(b"a", id=97),)), Delta("", (EOS,), (last,)), events[-1]]):
        upstream = Scripted(lambda _, tail=tail: tail)
        for streamed in (False, True):
            asked = (HI | {"logprobs": True}) if path == CHAT_PATH else {"prompt": "x", "logprobs": 0}
            async with client_of(app_over(upstream)) as client:
                body = (await client.post(path, json=asked | {"stream": streamed})).text
            replies = chunks_of(body) if streamed else [json.loads(body)]
            logs = [c["choices"][0]["logprobs"] for c in replies if c["choices"] and c["choices"][0]["logprobs"]]
            tokens = [t for log in logs for t in ([e["token"] for e in log["content"]] if path == CHAT_PATH else log["tokens"])]
            assert tokens == ["a"]
            assert len(logs) == 1, "no chunk for nothing"


async def test_top_logprobs_absent_or_zero_asks_for_the_chosen_token_alone() -> None:
    upstream = Scripted()
    await ask(upstream, logprobs=True)
    assert upstream.last.sampling.logprobs == 0
    await ask(upstream, logprobs=True, top_logprobs=0)
    assert upstream.last.sampling.logprobs == 0
    await ask(upstream, logprobs=True, top_logprobs=5)
    assert upstream.last.sampling.logprobs == 5
    await ask(upstream)
    assert upstream.last.sampling.logprobs is None


async def test_the_model_gives_the_defaults_and_the_client_overrides_them() -> None:
    upstream = Scripted()
    defaults = SamplingParams(temperature=0.6, top_p=0.95, top_k=20, stop_token_ids=(9,), max_tokens=100)
    app = create_app(FixedModels([served(upstream, defaults=defaults)]), ServerConfig(), Metrics())
    async with client_of(app) as client:
        await client.post(CHAT_PATH, json=HI)
        got = upstream.last.sampling
        assert (got.temperature, got.top_p, got.top_k, got.stop_token_ids, got.max_tokens) == (0.6, 0.95, 20, (9,), 100)
        more = {"temperature": 0, "top_k": -1, "stop_token_ids": [10], "max_completion_tokens": 7, "stop": "END", "logit_bias": {"5": -100}}
        await client.post(CHAT_PATH, json=HI | more)
    got = upstream.last.sampling
    assert (got.temperature, got.top_p, got.top_k, got.stop_token_ids, got.max_tokens) == (0.0, 0.95, 0, (9, 10), 7)
    assert got.stop == ("END",)
    assert got.logit_bias == ((5, -100.0),)


async def test_max_tokens_left_out_or_null_means_to_the_end_of_the_context() -> None:
    upstream = Scripted()
    await ask(upstream)
    await ask(upstream, max_tokens=None, max_completion_tokens=None)
    assert [r.sampling.max_tokens for r in upstream.requests] == [None, None]


async def test_fields_reach_the_request_that_the_upstream_sees() -> None:
    upstream = Scripted()
    await ask(
        upstream,
        min_p=0.1,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        min_tokens=2,
        ignore_eos=True,
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        priority=3,
        session_id="s1",
        timeout=12.5,
        chat_template_kwargs={"x": 1},
    )
    r, s = upstream.last, upstream.last.sampling
    assert (s.min_p, s.repetition_penalty, s.presence_penalty, s.frequency_penalty, s.min_tokens) == (0.1, 1.2, 0.5, -0.5, 2)
    assert (s.ignore_eos, s.include_stop, s.skip_special_tokens) == (True, True, False)
    assert (r.priority, r.session, r.deadline_s, r.model) == (3, "s1", 12.5, "tiny")
    assert isinstance(r.prompt, ChatPrompt)
    assert r.prompt.template_kwargs == {"x": 1}
    assert r.prompt.add_generation_prompt


async def test_messages_become_what_a_template_reads() -> None:
    upstream = Scripted()
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": "hi", "name": "ann"},
        # As the official client dumps an answer of ours.
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "annotations": [],
            "audio": None,
            "function_call": None,
            "tool_calls": [call],
        },
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    ]
    await ask(upstream, messages=messages)
    assert isinstance(upstream.last.prompt, ChatPrompt)
    assert upstream.last.prompt.messages == (
        {"role": "system", "content": "a\nb"},
        {"role": "user", "content": "hi", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
    )


async def test_a_message_can_be_continued() -> None:
    upstream = Scripted()
    messages = [*HI["messages"], {"role": "assistant", "content": "Once"}]
    await ask(upstream, messages=messages, continue_final_message=True)
    assert isinstance(upstream.last.prompt, ChatPrompt)
    assert upstream.last.prompt.continue_final_message
    assert not upstream.last.prompt.add_generation_prompt


async def test_the_stop_that_matched_is_named() -> None:
    answer = await ask(Scripted(lambda _: say("a", matched="END")))
    assert answer["choices"][0]["stop_reason"] == "END"
    chunks = await stream(Scripted(lambda _: say("a", matched=9)))
    assert chunks[-1]["choices"][0]["stop_reason"] == 9


async def test_harmless_fields_of_common_clients_are_accepted() -> None:
    await ask(
        Scripted(),
        user="u",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        parallel_tool_calls=True,
        prompt_cache_key="k",
        safety_identifier="s",
        reasoning_effort="low",
        verbosity="low",
        modalities=["text"],
        tools=None,
        stop=None,
        n=None,
    )


@pytest.mark.parametrize(
    ("fields", "kind", "source"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}},
            "json_schema",
            '{"type":"object"}',
        ),
        ({"structured_outputs": {"regex": "[ab]+"}}, "regex", "[ab]+"),
        ({"structured_outputs": {"grammar": "start: /a/"}}, "lark", "start: /a/"),
        ({"structured_outputs": {"json": {"type": "string"}}}, "json_schema", '{"type":"string"}'),
        ({"structured_outputs": {"json": '{"type":"string"}'}}, "json_schema", '{"type":"string"}'),
        ({"structured_outputs": {"choice": ["a.b", "c"]}}, "regex", r"(a\.b)|(c)"),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
    ],
)
async def test_constraints_become_grammars(fields: dict[str, Any], kind: str, source: str) -> None:
    upstream = Scripted()
    await ask(upstream, **fields)
    grammar = upstream.last.sampling.grammar
    assert grammar is not None
    assert (grammar.kind, grammar.source) == (kind, source)


async def test_a_text_format_constrains_nothing_and_json_cut_by_max_tokens_says_length() -> None:
    upstream = Scripted(lambda _: say('{"a": "unfin', reason="length"))
    answer = await ask(upstream, response_format={"type": "json_object"})
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"] == '{"a": "unfin'
    await ask(upstream, response_format={"type": "text"})
    assert upstream.last.sampling.grammar is None
