"""OutsideLauncher: an address that somebody else runs. Looks: whether it still answers. warm: a real token from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from camshaft.clock import SystemClock
from camshaft.cluster.backend import State
from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.exchange import HttpFault
from camshaft.cluster.foreign import Access, ForeignConfig
from camshaft.cluster.http1 import parse_address
from camshaft.cluster.openai import OpenAIBackend, Remote
from camshaft.errors import BadRequest, CamshaftError, Unavailable, UpstreamRefused
from camshaft.types import ChatPrompt, Request, SamplingParams, TextPrompt

WARM_S = 60.0  # longest wait for the first token


class Looks:
    """Implements openai.Life for something that is only looked at. A byte of any answer since the last look is as good as a look."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.ensure_future(self._look())

    async def lost(self) -> str:
        return await asyncio.shield(self._lost)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))

    async def _look(self) -> None:
        remote, config = self._remote, self._remote.config
        loop = asyncio.get_running_loop()
        misses = 0
        while misses < config.health_misses:
            since = loop.time()
            await asyncio.sleep(config.health_every_s)
            wrong = "" if remote.http.heard_at > since else await remote.is_well(config.health_wait_s)
            misses = misses + 1 if wrong else 0
        self._lost.set_result(f"{misses} health checks in a row failed; the last one: {wrong}")


class OutsideLauncher:
    """Implements Launcher. Launching is a look and one real token; closing closes our connections and nothing else."""

    def __init__(self, url: str, access: Access, config: ForeignConfig, estimate: TokenEstimate | None = None) -> None:
        """Raises ConfigError. `estimate` is shared by the replicas of a version."""
        self._address = parse_address(url)
        self._access = access
        self._config = config
        self._estimate = estimate or TokenEstimate()
        access.key()

    async def launch(self, name: str, told: Callable[[State], None]) -> OpenAIBackend:
        remote = Remote(self._address, self._access, self._config, self._estimate)
        launched = False
        try:
            wrong = await remote.is_well(self._config.health_wait_s)
            if wrong:
                raise Unavailable(f"{self._address.url} is not well: {wrong}")
            told("warming")
            await warm(remote, WARM_S)
            backend = OpenAIBackend(remote, Looks(remote), SystemClock())
            launched = True
            return backend
        finally:
            if not launched:
                remote.http.close()


async def warm(remote: Remote, limit_s: float) -> None:
    """One token, computed for real: as a chat, or as plain text where the model has no chat template. Raises Unavailable."""
    sampling = SamplingParams(max_tokens=1)
    try:
        await remote.learn_model(limit_s)
        try:
            await remote.answer(Request(id="warm", prompt=ChatPrompt(({"role": "user", "content": "Hi"},)), sampling=sampling), limit_s)
        except BadRequest:
            await remote.answer(Request(id="warm", prompt=TextPrompt("Hi"), sampling=sampling), limit_s)
    except HttpFault as fault:
        raise Unavailable(f"the server gave no token: {fault.message}") from None
    except UpstreamRefused as error:
        raise Unavailable(f"the server gave no token: {error.message}; {remote.blame}") from None
    except CamshaftError as error:
        raise Unavailable(f"the server gave no token: {error.message}", retry_after_s=error.retry_after_s) from None
