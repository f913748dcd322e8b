"""The engine as asyncio sees it: encoding, hand-over, slow and leaving readers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from byte_codec import ByteCodec
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.codec import Render, Speech
from camshaft.engine.llm import LLM
from camshaft.engine.loop import EngineLoop, Parts
from camshaft.engine.mailbox import Mailbox, Post
from camshaft.errors import BadRequest, ConfigError, PromptTooLong
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.types import (
    Capacity,
    ChatPrompt,
    Delta,
    Event,
    Failed,
    Finished,
    Grammar,
    KVGroup,
    Prompt,
    Request,
    SamplingParams,
    Started,
    TextPrompt,
    TokenLogprob,
    TokenPrompt,
    Usage,
)

CAPACITY = Capacity(260, 1024, 8, 257, (KVGroup(1),), 8, 64)


def engine(options: FakeOptions | None = None, codec: ByteCodec | None = None, render: Render | None = None) -> AsyncEngine:
    options = options or FakeOptions(reply=lambda p: b"Well, hello there.", eos_id=256)
    return AsyncEngine(Parts(FakeRunner(CAPACITY, options), EngineConfig()), Speech(codec or ByteCodec(), render))


def request(prompt: str | tuple[int, ...] | Prompt = "hi", **fields: object) -> Request:
    made = TextPrompt(prompt) if isinstance(prompt, str) else TokenPrompt(prompt) if isinstance(prompt, tuple) else prompt
    sampling = fields.pop("sampling", SamplingParams(max_tokens=50))
    return Request(id="r", prompt=made, sampling=sampling, **fields)  # type: ignore[arg-type]


async def collect(stream: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in stream]


def text_of(events: Sequence[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Delta))


async def failure(upstream: AsyncEngine, asked: Request) -> Failed:
    (event,) = await collect(upstream.stream(asked))
    assert isinstance(event, Failed)
    return event


# ------------------------------------------------------------------------------------------------------------ encoding


async def test_prompts_of_every_kind_are_encoded() -> None:
    def render(prompt: ChatPrompt, salt: str) -> list[int]:
        return list("|".join(m["content"] for m in prompt.messages).encode())

    upstream = engine(render=render)
    chat = ChatPrompt(({"role": "user", "content": "a"}, {"content": "b"}))
    for prompt, n in ((TextPrompt("hé"), 3), (TokenPrompt((1, 2)), 2), (chat, 3)):
        events = await collect(upstream.stream(request(prompt=prompt)))
        assert isinstance(events[0], Started)
        assert events[0].n_prompt == n
        assert text_of(events) == "Well, hello there."
    await upstream.close()


async def test_a_model_without_a_template_refuses_chats_and_says_what_to_do() -> None:
    upstream = engine()
    event = await failure(upstream, request(prompt=ChatPrompt(({"role": "user", "content": "x"},))))
    assert "/v1/completions" in event.error.message
    await upstream.close()


@pytest.mark.parametrize("ids", [(260,), (-1,), (1, 2, 10**9)])
async def test_ids_outside_the_vocabulary_are_refused(ids: tuple[int, ...]) -> None:
    upstream = engine()
    event = await failure(upstream, request(ids))
    assert event.error.status == 400
    assert str(next(i for i in ids if not 0 <= i < 260)) in event.error.message
    await upstream.close()


async def test_an_empty_prompt_is_refused() -> None:
    upstream = engine()
    assert "empty" in (await failure(upstream, request(""))).error.message
    assert "empty" in (await failure(upstream, request(()))).error.message
    await upstream.close()


async def test_a_text_that_cannot_fit_is_refused_before_it_is_encoded() -> None:
    class Counting(ByteCodec):
        n = 0

        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            self.n += 1
            return super().encode(text)

    codec = Counting()
    upstream = engine(codec=codec)
    event = await failure(upstream, request("x" * 5000))
    assert event.error.code == PromptTooLong.code
    assert codec.n == 0
    await upstream.close()


async def test_siblings_are_encoded_once_and_one_that_leaves_takes_nothing_along() -> None:
    class Slow(ByteCodec):
        n = 0

        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            self.n += 1
            time.sleep(0.05)
            return super().encode(text)

    codec = Slow()
    upstream = engine(codec=codec)
    tasks = [asyncio.ensure_future(collect(upstream.stream(request("same", siblings="s", choice=i)))) for i in range(4)]
    await asyncio.sleep(0.01)
    tasks[0].cancel()
    done = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(done[0], asyncio.CancelledError)
    assert [isinstance(events[-1], Finished) for events in done[1:]] == [True] * 3  # type: ignore[index]
    assert codec.n == 1
    await upstream.close()


async def test_a_slow_tokenizer_holds_up_neither_the_event_loop_nor_running_streams() -> None:
    released = threading.Event()

    class Stuck(ByteCodec):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            if text == "stuck":
                released.wait(10)
            return super().encode(text)

    upstream = engine(codec=Stuck())
    stuck = asyncio.ensure_future(collect(upstream.stream(request("stuck"))))
    assert text_of(await collect(upstream.stream(request("free")))) == "Well, hello there."
    assert (await upstream.health()).ready
    released.set()
    assert isinstance((await stuck)[-1], Finished)
    await upstream.close()


@pytest.mark.parametrize("chat", [False, True])
async def test_a_text_far_too_long_is_refused_after_work_for_the_context_alone(chat: bool) -> None:
    class Counting(ByteCodec):
        n = 0

        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            self.n += len(text)
            return super().encode(text)

        def n_at_least(self, text: str) -> int:
            return 1

    codec, text = Counting(), "word " * 400_000
    upstream = engine(codec=codec, render=lambda prompt, salt: codec.encode(prompt.messages[0]["content"]))
    prompt = ChatPrompt(({"role": "user", "content": text},)) if chat else TextPrompt(text)
    error = (await failure(upstream, request(prompt))).error
    assert error.code == PromptTooLong.code
    assert error.param == ("messages" if chat else "prompt")
    assert codec.n < 40 * CAPACITY.max_model_len
    await upstream.close()


async def test_a_text_of_few_tokens_for_its_length_is_taken() -> None:
    class Wide(ByteCodec):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            return super().encode("x" * -(-len(text) // 100))

        def n_at_least(self, text: str) -> int:
            return 1

    upstream = engine(codec=Wide())
    assert text_of(await collect(upstream.stream(request("y" * 60_000)))) == "Well, hello there."
    await upstream.close()


async def test_an_encoder_error_is_that_requests_failure() -> None:
    class Strict(ByteCodec):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            raise BadRequest("a lone surrogate", param="prompt")

    upstream = engine(codec=Strict())
    assert (await failure(upstream, request("x"))).error.message == "a lone surrogate"
    await upstream.close()


async def test_a_bad_grammar_is_refused_and_a_good_one_followed() -> None:
    upstream = engine(FakeOptions(eos_id=256))
    bad = await failure(upstream, request(sampling=SamplingParams(grammar=Grammar("regex", "(["))))
    assert bad.error.code == "invalid_grammar"
    good = await collect(upstream.stream(request(sampling=SamplingParams(max_tokens=50, grammar=Grammar("regex", "x{5}")))))
    assert text_of(good) == "xxxxx"
    await upstream.close()


async def test_an_absent_seed_is_drawn_afresh_for_each_request() -> None:
    upstream = engine(FakeOptions(eos_id=256))
    params = SamplingParams(temperature=1.0, max_tokens=20, ignore_eos=True)
    answers = await asyncio.gather(*[collect(upstream.stream(request(sampling=params))) for _ in range(4)])
    assert len({text_of(a) for a in answers}) == 4
    await upstream.close()


# ----------------------------------------------------------------------------------------------------------- hand-over


async def test_a_slow_reader_gets_fewer_and_larger_events_and_loses_nothing() -> None:
    upstream = engine(FakeOptions(eos_id=256))
    params = SamplingParams(temperature=0, max_tokens=200, ignore_eos=True, logprobs=1)
    wanted = await collect(upstream.stream(request(sampling=params)))
    events = []
    async for event in upstream.stream(request(sampling=params)):
        events.append(event)
        if len(events) == 2:
            async with asyncio.timeout(10):
                while upstream.engine.health().running:  # noqa: ASYNC110 - health is asked for, nobody announces it
                    await asyncio.sleep(0.01)
    assert len(events) <= 5
    assert text_of(events) == text_of(wanted)
    ids = [i for e in events if isinstance(e, Delta) for i in e.ids]
    assert [p.id for e in events if isinstance(e, Delta) for p in e.logprobs] == ids
    await upstream.close()


async def test_an_event_loop_is_woken_once_however_many_streams_have_news() -> None:
    class CountingLoop:
        n = 0

        def call_soon_threadsafe(self, call: object) -> None:
            self.n += 1

    counting = CountingLoop()
    post = Post(counting)  # type: ignore[arg-type]
    boxes = [Mailbox(post) for _ in range(100)]
    for box in boxes:
        box.put(Delta("x", (1,)))
        assert box.send()
    assert counting.n == 1


async def test_neighbouring_deltas_are_merged_and_nothing_else_is() -> None:
    box = Mailbox(Post(asyncio.get_running_loop()))
    logprob = TokenLogprob(1, b"a", -1.0)
    for event in (Started(1, 0, 0.0), Delta("a", (1,), (logprob,)), Delta("", (2,)), Delta("b", (3,)), Finished("stop", Usage(1, 0, 3))):
        box.put(event)
    assert [await box.get() for _ in range(3)] == [
        Started(1, 0, 0.0),
        Delta("ab", (1, 2, 3), (logprob,)),
        Finished("stop", Usage(1, 0, 3)),
    ]


def test_the_streams_of_an_event_loop_that_is_gone_are_aborted() -> None:
    upstream = engine(FakeOptions(step_s=0.002, sleep=time.sleep, eos_id=256))
    params = SamplingParams(temperature=0, max_tokens=900, ignore_eos=True)

    async def leave() -> None:
        stream = upstream.stream(request(sampling=params))
        await anext(stream)
        held.append(stream)

    held: list[AsyncIterator[Event]] = []
    loop = asyncio.new_event_loop()
    loop.run_until_complete(leave())
    loop.close()
    deadline = time.monotonic() + 10
    while upstream.engine.health().running and time.monotonic() < deadline:
        time.sleep(0.005)
    assert upstream.engine.health().running == 0
    upstream.engine.check()
    upstream.engine.close()


async def test_a_bug_in_the_loop_ends_every_stream_instead_of_hanging_it() -> None:
    upstream = engine(FakeOptions(step_s=0.002, sleep=time.sleep, eos_id=256))
    streams = [
        asyncio.ensure_future(collect(upstream.stream(request(sampling=SamplingParams(max_tokens=900, ignore_eos=True))))) for _ in range(3)
    ]

    def break_it(loop: EngineLoop) -> None:
        loop.scheduler.running.clear()
        loop.scheduler.plan = None  # type: ignore[assignment, method-assign]

    await asyncio.sleep(0.05)
    hook, threading.excepthook = threading.excepthook, lambda args: None
    try:
        upstream.engine.ask(break_it)
        async with asyncio.timeout(10):
            done = await asyncio.gather(*streams)
        # The thread tells its bug when it ends, which is after its streams did.
        for thread in threading.enumerate():
            if thread.name == "camshaft-engine":
                await asyncio.to_thread(thread.join, 10)
    finally:
        threading.excepthook = hook
    assert all(isinstance(events[-1], Failed) for events in done)
    health = await upstream.health()
    assert not health.ready
    assert "fault" in health.detail
    late = await failure(upstream, request())
    assert late.error.code == "engine_fault"
    await upstream.close()


def test_an_engine_over_another_runner_has_no_model_file() -> None:
    upstream = engine()
    with pytest.raises(ConfigError):
        _ = upstream.model
    upstream.engine.close()


# ---------------------------------------------------------------------------------------------------------- for scripts


def test_llm_answers_in_the_order_of_the_prompts() -> None:
    options = FakeOptions(reply=lambda p: [*p[::-1]], eos_id=256)
    with LLM(engine(options)) as llm:
        answers = llm.generate(["abc", "xy", TokenPrompt((49, 50))], SamplingParams(temperature=0, max_tokens=20))
        assert [a.text for a in answers] == ["cba", "yx", "21"]
        assert answers[0].finish_reason == "stop"
        assert answers[0].usage == Usage(3, 0, 4)
        assert llm.generate("one")[0].text == "eno"


def test_llm_gives_n_answers_with_logprobs() -> None:
    with LLM(engine(FakeOptions(eos_id=256))) as llm:
        params = SamplingParams(temperature=1.0, seed=1, n=3, max_tokens=8, ignore_eos=True, logprobs=2, prompt_logprobs=0)
        answers = llm.generate("some prompt", params)
        assert len({a.text for a in answers}) == 3
        assert all(len(a.logprobs) == 8 and len(a.prompt_logprobs) == 11 for a in answers)


def test_llm_raises_what_went_wrong_and_lives_on() -> None:
    with LLM(engine()) as llm:
        with pytest.raises(BadRequest, match="empty"):
            llm.generate(["fine", ""])
        with pytest.raises(BadRequest, match="2 sampling parameters for 1"):
            llm.generate(["a"], [SamplingParams(), SamplingParams()])
        assert llm.generate("x")[0].text == "Well, hello there."
    llm.close()


def test_llm_chats_with_one_conversation_or_several() -> None:
    def render(prompt: ChatPrompt, salt: str) -> list[int]:
        return list(prompt.messages[-1]["content"].encode())

    with LLM(engine(FakeOptions(reply=lambda p: list(p), eos_id=256), render=render)) as llm:
        params = SamplingParams(temperature=0, max_tokens=20)
        assert llm.chat([{"role": "user", "content": "ping"}], params)[0].text == "ping"
        both = llm.chat([[{"role": "user", "content": "a"}], [{"role": "user", "content": "b"}]], params)
        assert [a.text for a in both] == ["a", "b"]


def test_llm_refuses_settings_out_of_range_by_name() -> None:
    with pytest.raises(ConfigError, match="--max-num-seqs"):
        LLM("nothing", max_num_seqs=0)


async def test_llm_works_below_a_running_event_loop() -> None:
    with LLM(engine()) as llm:
        assert llm.generate("x")[0].text == "Well, hello there."


async def test_waiting_for_the_tokenizer_counts_towards_the_deadline() -> None:
    released = threading.Event()

    class Stuck(ByteCodec):
        def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
            released.wait(10)
            return super().encode(text)

    upstream = engine(codec=Stuck())
    event = await failure(upstream, request("x", deadline_s=0.05))
    released.set()
    assert event.error.code == "deadline_exceeded"
    await upstream.close()
