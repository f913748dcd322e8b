"""PromptEncoder: prompts become ids, and grammars matchers, off the event loop and off the engine thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from camshaft.engine.codec import Codec, Render
from camshaft.errors import BadGrammar, BadRequest, Draining, PromptTooLong
from camshaft.observe.threads import name_thread
from camshaft.sample.grammar import GrammarCompiler, Matcher
from camshaft.types import ChatPrompt, Prompt, Request, TextPrompt, TokenPrompt

_THREADS = 2
_GRAMMAR_S = 10.0  # longest wait for a grammar
_USUAL_CHARS = 8  # in a token, at most, of most text; only longer texts are counted before they are encoded
_COUNTED_CHARS = 16_384
_SHORT_CHARS = 1024  # and less is encoded in less time than a thread takes to wake up
_SHORT_IDS = 16_384


class Bounds(NamedTuple):
    """What a prompt is checked against before any work is spent on it."""

    vocab_size: int
    max_tokens: int


class PromptEncoder:
    """Its own small pool of threads: a 30 MB text in one of them holds up neither the event loop nor the next request."""

    def __init__(self, codec: Codec, bounds: Bounds, render: Render | None, observe: Callable[[float], None]) -> None:
        self._codec = codec
        self._bounds = bounds
        self._render = render
        self._observe = observe
        self._grammars = GrammarCompiler(codec, bounds.vocab_size)
        self._pool = ThreadPoolExecutor(_THREADS, "camshaft-encode", name_thread, ("encode",))
        self._closed = False
        self._shared: dict[tuple[str, str, str], tuple[Prompt, asyncio.Future[tuple[int, ...]]]] = {}  # prompts of siblings in work

    async def encode(self, request: Request) -> tuple[int, ...]:
        """The prompt's ids. Raises BadRequest and its kinds. The siblings of one call encode once."""
        if not request.siblings:
            if _is_short(request.prompt):
                self._raise_if_closed()
                return self._encode(request)
            return await self._start(request)
        key = (request.tenant, request.cache_salt, request.siblings)
        known = self._shared.get(key)
        if known is None or known[0] != request.prompt:
            future = self._start(request)
            self._shared[key] = known = (request.prompt, future)
            future.add_done_callback(lambda done: self._unshare(key, done))
        # Shielded: one sibling that is cancelled must not take the others' prompt with it.
        return await asyncio.shield(known[1])

    async def matcher(self, request: Request) -> Matcher | None:
        """The grammar's matcher, if one is asked for. Raises BadGrammar."""
        grammar = request.sampling.grammar
        if grammar is None:
            return None
        self._raise_if_closed()
        work = asyncio.get_running_loop().run_in_executor(self._pool, self._grammars.matcher, grammar)
        try:
            return await asyncio.wait_for(work, _GRAMMAR_S)
        except TimeoutError:
            raise BadGrammar(f"the grammar was not compiled within {_GRAMMAR_S:g} s; make it simpler", param="response_format") from None

    def close(self) -> None:
        """Take nothing new; what is in work ends by itself."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def _raise_if_closed(self) -> None:
        if self._closed:
            raise Draining("the engine is shutting down; try another replica")

    def _start(self, request: Request) -> asyncio.Future[tuple[int, ...]]:
        self._raise_if_closed()
        return asyncio.get_running_loop().run_in_executor(self._pool, self._encode, request)

    def _unshare(self, key: tuple[str, str, str], done: asyncio.Future[tuple[int, ...]]) -> None:
        known = self._shared.get(key)
        if known is not None and known[1] is done:
            del self._shared[key]
        if not done.cancelled():
            done.exception()  # looked at, so that asyncio does not report it as lost

    def _encode(self, request: Request) -> tuple[int, ...]:
        began = time.perf_counter()
        ids = self._ids(request)
        if not ids:
            raise BadRequest("the prompt is empty: give at least one token", param="prompt")
        self._raise_if_full(len(ids), request)
        self._observe(time.perf_counter() - began)
        return ids

    def _ids(self, request: Request) -> tuple[int, ...]:
        prompt = request.prompt
        if isinstance(prompt, TokenPrompt):
            size = self._bounds.vocab_size
            if prompt.ids and not (min(prompt.ids) >= 0 and max(prompt.ids) < size):
                bad = next(i for i in prompt.ids if not 0 <= i < size)
                raise BadRequest(f"the prompt has token {bad}, but ids go from 0 to {size - 1}", param="prompt")
            return prompt.ids
        if isinstance(prompt, TextPrompt):
            self._raise_if_too_long(prompt.text, "prompt")
            return tuple(self._codec.encode(prompt.text, prompt.add_special_tokens))
        if self._render is None:
            raise BadRequest("this model has no chat template: use /v1/completions or a text prompt", param="messages")
        self._raise_if_too_long("\n".join(said for m in prompt.messages if isinstance(said := m.get("content"), str)), "messages")
        return tuple(self._render(prompt, request.owner))

    def _raise_if_full(self, n: int, request: Request) -> None:
        """Refuses here what no replica could take, so that none is asked and no place in line is held."""
        most, n_new = self._bounds.max_tokens, 0 if request.sampling.max_tokens == 0 else 1
        if n + n_new > most:
            room = f"{n} tokens{' and one to generate' if n_new else ''} do not fit into the context of {most}"
            param = "messages" if isinstance(request.prompt, ChatPrompt) else "prompt"
            raise PromptTooLong(f"the prompt is too long: {room}; shorten it", param=param)

    def _raise_if_too_long(self, text: str, param: str) -> None:
        """Refuses what cannot fit after work in proportion to the context, not to the text: 8 MB would take ten seconds of a core."""
        most = self._bounds.max_tokens
        least = self._codec.n_at_least(text)
        if least <= most and len(text) > most * _USUAL_CHARS:
            least = _tokens_up_to(self._codec, text, most)
        if least > most:
            room = f"at least {least} tokens, and the context has room for {most}"
            raise PromptTooLong(f"the prompt is too long: {room}; shorten it", param=param)


def _is_short(prompt: Prompt) -> bool:
    """Whether the prompt is encoded where it is, rather than in a thread. A chat never is: its template is a stranger's program."""
    if isinstance(prompt, TokenPrompt):
        return len(prompt.ids) <= _SHORT_IDS
    return isinstance(prompt, TextPrompt) and len(prompt.text) <= _SHORT_CHARS


def _tokens_up_to(codec: Codec, text: str, most: int) -> int:
    """A floor of the number of tokens, exact enough to say that it is above `most`; stops counting soon after it.

    A cut may split a word and so add a few tokens. Half of the count leaves room for that many times over.
    """
    n = 0
    for start in range(0, len(text), _COUNTED_CHARS):
        n += len(codec.encode(text[start : start + _COUNTED_CHARS]))
        if n // 2 > most:
            break
    return n // 2
