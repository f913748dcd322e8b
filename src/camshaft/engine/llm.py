"""LLM: the engine for scripts and notebooks, without async."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import threading
from collections.abc import Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar

from msgspec import Struct

from camshaft.config import EngineConfig, resolve
from camshaft.engine.async_engine import AsyncEngine
from camshaft.engine.model import Model
from camshaft.errors import BadRequest, from_info
from camshaft.types import (
    ChatPrompt,
    Delta,
    Failed,
    Finished,
    Prompt,
    Request,
    SamplingParams,
    Scored,
    TextPrompt,
    TokenLogprob,
    TokenPrompt,
    Usage,
)

T = TypeVar("T")

Message = Mapping[str, Any]  # {"role": "user", "content": "..."}

_MOST_AT_ONCE = 512  # requests handed to the engine; the rest wait here, where waiting has no bound


class Completion(Struct, frozen=True):
    """One answer. `logprobs` has an entry for each id where they were asked for; so has `prompt_logprobs` for the prompt."""

    text: str
    ids: tuple[int, ...]
    finish_reason: Literal["stop", "length", "content_filter"]
    usage: Usage
    logprobs: tuple[TokenLogprob, ...] = ()
    prompt_logprobs: tuple[TokenLogprob, ...] = ()


class LLM:
    """A model in this process. Use it as a context manager or `close` it.

    >>> with LLM("smollm2-135m") as llm:
    ...     print(llm.generate("The capital of France is")[0].text)
    """

    def __init__(
        self,
        model: str | AsyncEngine = "",
        *,
        config: EngineConfig | None = None,
        threads: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        kv_memory: str | None = None,
    ) -> None:
        """`model`: a catalogue name, an `hf://` address, a path, or an engine that is there already, which is then closed with this.

        The keyword settings go before `config`. Raises ConfigError, ModelError or DownloadError.
        """
        given = {"threads": threads, "max_model_len": max_model_len, "max_num_seqs": max_num_seqs, "kv_memory": kv_memory}
        settings, _ = resolve(EngineConfig, cli=given, file=dataclasses.asdict(config or EngineConfig()))
        self._engine = AsyncEngine.from_model(model, settings) if isinstance(model, str) else model
        self._ids = itertools.count(1)
        # A loop of its own on a thread of its own: it works below a running event loop too, as in a notebook.
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="camshaft-llm", daemon=True)
        self._thread.start()

    @property
    def model(self) -> Model:
        return self._engine.model

    def generate(
        self, prompts: str | Prompt | Sequence[str | Prompt], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Completion]:
        """Answers in the order of the prompts; `params.n` of them each. The first failure is raised and ends the others.

        A str is raw text. `params` is for all, or one for each; None samples as the model's makers would.
        """
        several = [prompts] if isinstance(prompts, (str, TextPrompt, TokenPrompt, ChatPrompt)) else list(prompts)
        wanted = [TextPrompt(p) if isinstance(p, str) else p for p in several]
        return self._run(self._generate(wanted, self._params(params, len(wanted))))

    def chat(
        self, messages: Sequence[Message] | Sequence[Sequence[Message]], params: SamplingParams | Sequence[SamplingParams] | None = None
    ) -> list[Completion]:
        """Answers to one conversation or to several."""
        single = bool(messages) and isinstance(messages[0], Mapping)
        chats: list[Any] = [messages] if single else list(messages)
        prompts: list[Prompt] = [ChatPrompt(tuple(dict(message) for message in chat)) for chat in chats]
        return self._run(self._generate(prompts, self._params(params, len(prompts))))

    def close(self) -> None:
        """Give back memory and threads. Idempotent."""
        if self._loop.is_closed():
            return
        self._run(self._engine.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # ----------------------------------------------------------------------------------------------------------- inside

    def _params(self, params: SamplingParams | Sequence[SamplingParams] | None, n: int) -> list[SamplingParams]:
        if params is None:
            return [self._engine.defaults] * n
        if isinstance(params, SamplingParams):
            return [params] * n
        if len(params) != n:
            raise BadRequest(f"{len(params)} sampling parameters for {n} prompts: give one, or one for each", param="params")
        return list(params)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    async def _generate(self, prompts: Sequence[Prompt], params: Sequence[SamplingParams]) -> list[Completion]:
        gate = asyncio.Semaphore(_MOST_AT_ONCE)
        requests = [r for prompt, sampling in zip(prompts, params, strict=True) for r in self._requests(prompt, sampling)]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._one(request, gate)) for request in requests]
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return [task.result() for task in tasks]

    def _requests(self, prompt: Prompt, sampling: SamplingParams) -> list[Request]:
        call = f"llm-{next(self._ids)}"
        n = max(1, sampling.n)
        return [Request(id=f"{call}-{i}", prompt=prompt, sampling=sampling, choice=i, siblings=call if n > 1 else "") for i in range(n)]

    async def _one(self, request: Request, gate: asyncio.Semaphore) -> Completion:
        text: list[str] = []
        ids: list[int] = []
        logprobs: list[TokenLogprob] = []
        scored: tuple[TokenLogprob, ...] = ()
        async with gate:
            async for event in self._engine.stream(request):
                if isinstance(event, Delta):
                    text.append(event.text)
                    ids.extend(event.ids)
                    logprobs.extend(event.logprobs)
                elif isinstance(event, Scored):
                    scored = event.logprobs
                elif isinstance(event, Failed):
                    raise from_info(event.error)
                elif isinstance(event, Finished):
                    return Completion("".join(text), tuple(ids), event.reason, event.usage, tuple(logprobs), scored)
        raise AssertionError("a stream ended without its terminal event")
