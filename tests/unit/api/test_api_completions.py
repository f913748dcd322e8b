"""Text completions: prompts of every kind, echo, and log-probabilities in the older shape."""

from __future__ import annotations

from typing import Any

import pytest

from api_doubles import BOS, TEXT_PATH, ByteTokenizer, Script, Scripted, app_over, chunks_of, client_of, say, scored
from camshaft.types import Delta, Finished, Request, Scored, Started, TextPrompt, TokenLogprob, TokenPrompt, Usage


async def ask(upstream: Scripted, **fields: Any) -> dict[str, Any]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(TEXT_PATH, json=fields)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


async def stream(upstream: Scripted, **fields: Any) -> list[dict[str, Any]]:
    async with client_of(app_over(upstream)) as client:
        reply = await client.post(TEXT_PATH, json=fields | {"stream": True})
    assert reply.status_code == 200, reply.text
    return chunks_of(reply.text)


def scoring(request: Request) -> Script:
    """As an engine scores a prompt: every token a byte, the first unpredicted; then "!?" if tokens may be generated."""
    tokenizer = ByteTokenizer()
    prompt = request.prompt
    ids = prompt.ids if isinstance(prompt, TokenPrompt) else tokenizer.encode(prompt.text, prompt.add_special_tokens)  # type: ignore[union-attr]
    log = tuple(scored(tokenizer.token_bytes(t), None if i == 0 else -float(i), t) for i, t in enumerate(ids))
    out: list[Any] = [Started(len(ids), 0, 0.0), Scored(log)]
    if request.sampling.max_tokens == 0:
        return [*out, Finished("length", Usage(len(ids), 0, 0))]
    return [*out, Delta("!?", (33, 63), (scored(b"!", -0.1, 33), scored(b"?", -0.2, 63))), Finished("stop", Usage(len(ids), 0, 2))]


@pytest.mark.parametrize(
    ("prompt", "want"),
    [
        ("ab", [TextPrompt("ab")]),
        (["ab", "c"], [TextPrompt("ab"), TextPrompt("c")]),
        ([97, 98], [TokenPrompt((97, 98))]),
        ([[97], [98, 99]], [TokenPrompt((97,)), TokenPrompt((98, 99))]),
    ],
)
async def test_a_prompt_is_text_ids_or_a_list_of_either(prompt: Any, want: list[Any]) -> None:
    upstream = Scripted()
    answer = await ask(upstream, prompt=prompt, n=2)
    assert [r.prompt for r in upstream.requests] == [p for p in want for _ in range(2)]
    assert [r.choice for r in upstream.requests] == [0, 1] * len(want)
    assert [c["index"] for c in answer["choices"]] == list(range(2 * len(want)))
    assert answer["usage"]["prompt_tokens"] == 5 * len(want), "a prompt counts once, not once per choice"
    assert answer["usage"]["completion_tokens"] == 11 * 2 * len(want)
    assert answer["id"].startswith("cmpl-")


async def test_special_tokens_can_be_left_out() -> None:
    upstream = Scripted()
    await ask(upstream, prompt="a", add_special_tokens=False)
    assert upstream.last.prompt == TextPrompt("a", add_special_tokens=False)


async def test_a_stream_ends_each_choice_with_empty_text_and_the_reason() -> None:
    chunks = await stream(Scripted(lambda _: say("a", "b", reason="length")), prompt="x", stream_options={"include_usage": True})
    assert [c["choices"][0]["text"] for c in chunks[:-1]] == ["a", "b", ""]
    assert [c["choices"][0]["finish_reason"] for c in chunks[:-1]] == [None, None, "length"]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] == 2


async def test_echo_gives_the_prompt_back_streaming_or_not() -> None:
    script = Scripted(lambda _: say("c", "d"))
    assert (await ask(script, prompt="ab", echo=True))["choices"][0]["text"] == "abcd"
    assert "".join(c["choices"][0]["text"] for c in await stream(script, prompt="ab", echo=True)) == "abcd"
    assert (await ask(script, prompt=[BOS, 97, 98], echo=True))["choices"][0]["text"] == "abcd"


async def test_echo_with_logprobs_and_no_tokens_scores_the_prompt() -> None:
    upstream = Scripted(scoring)
    choice = (await ask(upstream, prompt="a🙂b", echo=True, logprobs=1, max_tokens=0))["choices"][0]
    assert (upstream.last.sampling.prompt_logprobs, upstream.last.sampling.max_tokens) == (1, 0)
    assert choice["text"] == "a🙂b"
    assert choice["finish_reason"] == "length"
    log = choice["logprobs"]
    assert log["tokens"] == ["<s>", "a", "bytes:\\xf0", "bytes:\\x9f", "bytes:\\x99", "bytes:\\x82", "b"]
    assert log["token_logprobs"] == [None, -1, -2, -3, -4, -5, -6]
    assert log["top_logprobs"][0] is None
    assert log["top_logprobs"][1] == {"a": -1}
    # The BOS takes no room, and the parts of a character all begin where it does.
    assert log["text_offset"] == [0, 0, 1, 1, 1, 1, 2]


async def test_echo_with_logprobs_goes_on_into_the_answer() -> None:
    choice = (await ask(Scripted(scoring), prompt="ab", echo=True, logprobs=0, max_tokens=2))["choices"][0]
    assert choice["text"] == "ab!?"
    assert choice["logprobs"]["tokens"] == ["<s>", "a", "b", "!", "?"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1, 2, 3]
    chunks = await stream(Scripted(scoring), prompt="ab", echo=True, logprobs=0, max_tokens=2)
    logs = [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0]["logprobs"]]
    for key, whole in choice["logprobs"].items():
        assert [x for log in logs for x in log[key]] == whole
    assert "".join(c["choices"][0]["text"] for c in chunks) == "ab!?"


async def test_a_sentencepiece_blank_in_front_shifts_no_offset() -> None:
    def script(_: Request) -> Script:
        log = (TokenLogprob(300, b" Hello", None), TokenLogprob(301, b" you", -1.0))
        return [Started(2, 0, 0.0), Scored(log), Finished("length", Usage(2, 0, 0))]

    choice = (await ask(Scripted(script), prompt="Hello you", echo=True, logprobs=0, max_tokens=0))["choices"][0]
    assert choice["logprobs"]["text_offset"] == [0, 5]


async def test_logprobs_without_echo_start_at_the_answer_and_hold_the_chosen_token_too() -> None:
    entries = (scored(b"!", -2.0, 33, top=((b"a", -0.1), (b"b", -0.2))),)
    script = Scripted(lambda _: [Started(1, 0, 0.0), Delta("!", (33,), entries), Finished("stop", Usage(1, 0, 1))])
    log = (await ask(script, prompt="x", logprobs=2))["choices"][0]["logprobs"]
    assert log == {"tokens": ["!"], "token_logprobs": [-2.0], "top_logprobs": [{"a": -0.1, "b": -0.2, "!": -2.0}], "text_offset": [0]}
    assert script.last.sampling.prompt_logprobs is None


async def test_unseeded_equal_prompts_of_one_call_are_drawn_apart() -> None:
    upstream = Scripted()
    await ask(upstream, prompt=["a", "a"])
    first, second = upstream.requests
    assert (first.sampling.seed, first.choice) != (second.sampling.seed, second.choice)
