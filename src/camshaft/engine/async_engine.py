"""AsyncEngine: one model as an Upstream for asyncio."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import msgspec

from camshaft.config import EngineConfig
from camshaft.engine.codec import Speech
from camshaft.engine.encode import Bounds, PromptEncoder
from camshaft.engine.engine import Engine
from camshaft.engine.job import Job
from camshaft.engine.loop import Parts
from camshaft.engine.mailbox import Mailbox, Post
from camshaft.engine.model import Model
from camshaft.engine.output import FlushRules, Output
from camshaft.errors import BadRequest, CamshaftError, ConfigError, DeadlineExceeded
from camshaft.observe.metrics import EngineMetrics
from camshaft.sample import params
from camshaft.sched.sequence import Sequence
from camshaft.types import Event, Failed, Finished, Health, Request, SamplingParams


class AsyncEngine:
    """Implements types.Upstream. Encodes off the event loop, hands over to the engine thread, streams what comes back."""

    def __init__(self, parts: Parts, speech: Speech, model: Model | None = None) -> None:
        self._engine = Engine(parts)
        self._clock = parts.clock
        self._codec = speech.codec
        self._longest_s = parts.config.default_deadline_s
        self._rules = FlushRules.of(parts.config)
        self.capacity = parts.runner.capacity()
        self.numerics_id = parts.runner.numerics_id if parts.runner.invariant else ""
        self._vocab_size = self.capacity.vocab_size
        metrics = self._engine.metrics
        bounds = Bounds(self._vocab_size, self._engine.limits.max_model_len)
        self._encoder = PromptEncoder(speech.codec, bounds, speech.render, lambda seconds: metrics.stage("encode", seconds))
        self._model = model
        self._keys = itertools.count(1)
        self._posts: dict[asyncio.AbstractEventLoop, Post] = {}

    @classmethod
    def from_model(cls, name: str = "", config: EngineConfig | None = None, metrics: EngineMetrics | None = None) -> AsyncEngine:
        """Load a model by catalogue name, `hf://` address or path, fetched if need be. Blocks for seconds: call it before serving."""
        # Imported here, because an engine over another runner needs no native runtime.
        from camshaft.engine.load import load

        loaded = load(name, config or EngineConfig(), metrics)
        return cls(loaded.parts, loaded.speech, loaded.model)

    @property
    def model(self) -> Model:
        """What was loaded. Only of an engine made by `from_model`."""
        if self._model is None:
            raise ConfigError("this engine was not loaded from a model file")
        return self._model

    @property
    def defaults(self) -> SamplingParams:
        """How to sample where a caller does not say."""
        return SamplingParams() if self._model is None else self._model.defaults

    @property
    def engine(self) -> Engine:
        """The engine below, for checks and numbers."""
        return self._engine

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        """Events in order, exactly one terminal; every failure is a Failed event. Closing the iterator frees everything within one step."""
        async with aclosing(self.batches(request)) as batches:
            async for batch in batches:
                for event in batch:
                    yield event

    async def batches(self, request: Request) -> AsyncGenerator[tuple[Event, ...], None]:
        """The same, all that is ready at a time: an answer's last text and its end come together."""
        job: Job | None = None
        over = False
        mailbox = Mailbox(self._post())
        try:
            try:
                job = await self._timely_job(request, mailbox)
            except CamshaftError as error:
                self._engine.metrics.refused(error.code)
                over = True
                yield (Failed(error.info()),)
                return
            self._engine.submit(job)
            while not over:
                batch = [await mailbox.get()]
                while mailbox:
                    batch.append(mailbox.take())
                over = isinstance(batch[-1], (Finished, Failed))
                yield tuple(batch)
        finally:
            if job is not None and not over:
                self._engine.abort(job)

    async def health(self) -> Health:
        return self._engine.health()

    async def close(self) -> None:
        """End what runs with Draining and give everything back. Idempotent."""
        self._encoder.close()
        await asyncio.get_running_loop().run_in_executor(None, self._engine.close)

    async def _timely_job(self, request: Request, mailbox: Mailbox) -> Job:
        """A job whose prompt is encoded; waiting for that counts towards the deadline as all waiting does."""
        limit_s = request.limit_s(self._longest_s)
        try:
            async with asyncio.timeout(limit_s):
                return await self._job(request, mailbox)
        except TimeoutError:
            raise DeadlineExceeded(f"the deadline of {limit_s:g} s passed before the prompt was encoded; allow more time") from None

    async def _job(self, request: Request, mailbox: Mailbox) -> Job:
        arrived_at = request.arrived_at or self._clock.now()
        sampling = request.sampling
        params.check(sampling, self._vocab_size)
        if sampling.seed is None:
            sampling = msgspec.structs.replace(sampling, seed=secrets.randbits(63))
        request = msgspec.structs.replace(request, sampling=sampling, arrived_at=arrived_at)
        self._check_resume(request)
        matcher = await self._encoder.matcher(request)
        ids = await self._encoder.encode(request)
        seq = Sequence(next(self._keys), request, ids, arrived_at)
        return Job(seq, Output(request, ids, self._codec, self._rules), mailbox, matcher)

    def _check_resume(self, request: Request) -> None:
        resume = request.resume
        if resume is not None and not all(0 <= i < self._vocab_size for i in resume.ids):
            raise BadRequest(f"resume has ids outside 0 to {self._vocab_size - 1}", param="resume")
        if resume is not None and resume.n_chars_sent < 0:
            raise BadRequest("resume says that a negative number of characters was sent", param="resume")

    def _post(self) -> Post:
        """The post of the running event loop; those of closed ones are dropped."""
        loop = asyncio.get_running_loop()
        post = self._posts.get(loop)
        if post is None:
            self._posts = {known: p for known, p in self._posts.items() if not known.is_closed()}
            post = self._posts[loop] = Post(loop)
        return post
