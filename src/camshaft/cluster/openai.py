"""OpenAIBackend: a server of another make that speaks OpenAI's API, as a Backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.exchange import HttpFault, Response, Waits
from camshaft.cluster.foreign import DIALECTS, Access, ForeignConfig
from camshaft.cluster.http1 import Address, Http1
from camshaft.cluster.openai_answer import Answer
from camshaft.cluster.openai_request import question
from camshaft.cluster.refusal import OURS, refusal
from camshaft.errors import CamshaftError, DeadlineExceeded, Draining, ReplicaLost, Unavailable
from camshaft.schema.foreign import ForeignModels
from camshaft.types import Clock, Event, Failed, Finished, Health, Load, ReplicaInfo, Request, Started

MAX_REFUSAL_BYTES = 65_536
MAX_ANSWER_BYTES = 16_000_000  # of one that does not stream
MAX_GET_BYTES = 1_000_000
METRICS_S = 2.0
MAX_NAME_CHARS = 512
LONGEST_S = 86_400.0  # an answer without a deadline still ends


class Life(Protocol):
    """Whether what answers still lives: a process that is ours, an address that is looked at now and then."""

    async def lost(self) -> str:
        """As Backend.lost."""
        ...

    async def close(self) -> None:
        """End what is ours of it. Idempotent; bounded in time."""
        ...


class Remote:
    """How one server is spoken to: its connections, its name for the model, our key there, what is learned of its tokens."""

    def __init__(self, address: Address, access: Access, config: ForeignConfig, estimate: TokenEstimate) -> None:
        """Raises ConfigError for a key that is not there and certificates that cannot be read."""
        self.key = access.key()
        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        self.http = Http1(address, headers, connect_s=config.connect_s, ca_file=config.ca_file)
        self.config = config
        self.model = access.model
        self.blame = access.blame  # where our key comes from
        self.estimate = estimate
        self._dialect = DIALECTS[config.dialect]
        self._prefix = address.prefix or "/v1"

    async def learn_model(self, limit_s: float) -> None:
        """Ask for the model's name, where it was not given. Raises HttpFault, Unavailable."""
        if self.model:
            return
        status, body = await self.get(self._prefix + "/models", limit_s)
        try:
            listed = msgspec.json.decode(body, type=ForeignModels).data if status == 200 else ()
        except (ValueError, RecursionError):
            listed = ()
        if not listed:
            raise Unavailable("the server does not say what its model is called; say it for this version: model = NAME")
        self.model = listed[0].id[:MAX_NAME_CHARS]

    async def is_well(self, limit_s: float) -> str:
        """ "" where it answers; else what is wrong. A server without the path for health is asked for its models."""
        try:
            status, _ = await self.get(self.config.health_path, limit_s)
            if status == 404:
                status, _ = await self.get(self._prefix + "/models", limit_s)
        except HttpFault as fault:
            return fault.message
        if status in OURS:
            return f"its health check says {status}; {self.blame}"
        return "" if status == 200 else f"its health check says {status}"

    async def ask(self, request: Request, waits: Waits) -> Response:
        """The answer once its head is there and says 200; its owner closes it. Raises CamshaftError, HttpFault."""
        asked = question(request, self.model, self._dialect)
        headers = {self._dialect.id_header: request.id} | ({"traceparent": request.trace} if request.trace else {})
        response = await self.http.send("POST", self._prefix + asked.path, waits, body=asked.body, headers=headers)
        if response.status == 200:
            return response
        try:
            body = await response.whole(MAX_REFUSAL_BYTES)
        finally:
            response.close()
        raise refusal(response.status, response.headers, body, self.key)

    async def answer(self, request: Request, limit_s: float) -> Finished:
        """An answer's end, for who needs no more of it. Raises CamshaftError, HttpFault."""
        response = await self.ask(request, Waits(asyncio.get_running_loop().time() + limit_s, limit_s, limit_s))
        try:
            answer = Answer(request, self.estimate, self.key)
            body = await response.whole(MAX_ANSWER_BYTES)
        finally:
            response.close()
        if streams(response):
            answer.feed(body)
        else:
            answer.whole(body)
        return answer.end()

    async def get(self, path: str, limit_s: float) -> tuple[int, bytes]:
        """Status and body of a GET. Raises HttpFault."""
        response = await self.http.send("GET", path, Waits(asyncio.get_running_loop().time() + limit_s, limit_s, limit_s))
        try:
            return response.status, await response.whole(MAX_GET_BYTES)
        finally:
            response.close()


def streams(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith("text/event-stream")


class OpenAIBackend:
    """Implements Backend. Every failure is a Failed event; leaving a stream closes its connection, which is how the server hears of it."""

    def __init__(self, remote: Remote, life: Life, clock: Clock) -> None:
        self._remote = remote
        self._life = life
        self._clock = clock
        self._running = 0
        self._gone = ""  # why no more is answered
        self._closing = False
        self._watch = asyncio.ensure_future(self._end_with(life))

    @property
    def info(self) -> ReplicaInfo:
        config = self._remote.config
        return ReplicaInfo(max_model_len=config.max_model_len, max_num_seqs=config.max_num_seqs)

    @property
    def load(self) -> Load:
        return Load()  # such servers report none; what we gave it is counted where it was given

    @property
    def estimate(self) -> TokenEstimate:
        return self._remote.estimate

    async def stream(self, request: Request) -> AsyncIterator[Event]:
        response: Response | None = None
        over = False
        self._running += 1
        try:
            response = await self._ask(request)
            answer = Answer(request, self._remote.estimate, self._remote.key)
            yield Started(answer.n_prompt, -1, 0.0)
            if streams(response):
                while not answer.over and (data := await response.read()):
                    for delta in answer.feed(data):
                        yield delta
            else:
                for delta in answer.whole(await response.whole(MAX_ANSWER_BYTES)):
                    yield delta
            finished = answer.end()
            if (rest := answer.rest()) is not None:
                yield rest
            over = True
            yield finished
        except HttpFault as fault:
            yield Failed(self._error(fault).info())
        except CamshaftError as error:
            yield Failed(error.info())
        finally:
            self._running -= 1
            if response is not None:
                if over:
                    response.leave()
                else:
                    response.close()

    async def health(self) -> Health:
        return Health(ready=not self._gone, running=self._running, waiting=0, detail=self._gone)

    async def lost(self) -> str:
        return await self._life.lost()

    async def metrics(self) -> bytes:
        try:
            status, body = await self._remote.get("/metrics", METRICS_S)
        except HttpFault:
            return b""
        return body if status == 200 else b""

    async def close(self) -> None:
        self._gone = self._gone or "closed"
        self._closing = True
        self._remote.http.close("the replica was shut down")
        self._watch.cancel()
        await self._life.close()

    async def _ask(self, request: Request) -> Response:
        if self._gone:
            raise Draining("this replica was shut down") if self._closing else ReplicaLost(f"the replica is lost: {self._gone}")
        return await self._remote.ask(request, self._waits(request))

    def _waits(self, request: Request) -> Waits:
        config = self._remote.config
        limit_s = LONGEST_S if request.deadline_s is None else request.deadline_s
        if request.arrived_at:
            limit_s -= self._clock.now() - request.arrived_at
        return Waits(asyncio.get_running_loop().time() + limit_s, config.first_token_s, config.idle_s)

    def _error(self, fault: HttpFault) -> CamshaftError:
        if fault.kind == "late":
            return DeadlineExceeded("the deadline passed before the answer was complete; allow more time")
        if self._closing:
            return Draining("this replica was shut down before the answer was complete")
        return ReplicaLost(f"the replica was lost: {fault.message}")

    async def _end_with(self, life: Life) -> None:
        self._gone = await life.lost()
        self._remote.http.abort(self._gone)
