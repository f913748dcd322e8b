"""A whole gateway in this process: its file, its edge, its state on disk. Only its replicas pretend, and live here too."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from api_doubles import client_of
from camshaft.cli import gateway as assembly
from camshaft.cli.gateway import Gateway, Source, opened
from camshaft.cluster.backend import Backend, State
from camshaft.cluster.estimate import TokenEstimate
from camshaft.engine.codec import Speech
from camshaft.gateway.file import parse
from camshaft.gateway.spec import FleetSpec, VersionSpec
from camshaft.gateway.version import Means, Version
from camshaft.types import SamplingParams
from gateway_rig import CAPACITY, Mortal, until
from served_fake import Chat, ServingCodec

# A model that nobody fetches: the rig answers in its place.
MODEL = """
[models.{name}]
{more}
[models.{name}.versions.v1]
engine = "openai"
url = "http://127.0.0.1:1/v1"
"""


def model(name: str, more: str = "") -> str:
    """A model's part of the file; `more` are lines of its table."""
    return MODEL.format(name=name, more=more)


def digest(key: str) -> str:
    """As the file wants keys."""
    return "sha256:" + hashlib.sha256(key.encode()).hexdigest()


class FakeWords:
    """Bytes as tokens, and conversations as lines: engine.words.Words without a model."""

    def __init__(self) -> None:
        self.tokenizer, self.dialogue, self.defaults = ServingCodec(), Chat(), SamplingParams()
        self.speech = Speech(self.tokenizer, lambda prompt, salt: self.dialogue.encode(prompt))


class Rig:
    """What a test looks at."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.app = gateway.app()

    def client(self, key: str = "") -> httpx.AsyncClient:
        return client_of(self.app, {"authorization": f"Bearer {key}"} if key else None)

    def version(self, model: str, name: str = "v1") -> Version:
        return self.gateway.fleet.models[model].versions[name]

    async def ready(self) -> None:
        await until(lambda: all(r.state == "ready" for v in self.gateway.fleet.versions for r in v.pool.replicas))

    async def down(self, model: str) -> None:
        """All its replicas go, and none comes back."""
        await self.version(model).pool.close()


@asynccontextmanager
async def edge(
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[VersionSpec], Backend] = lambda spec: Mortal(),
    over: Callable[[FleetSpec], FleetSpec] = lambda spec: spec,
) -> AsyncIterator[Rig]:
    """A gateway that runs the file `text`, once its replicas are ready. `make` gives a backend for each of them."""

    class Launcher:
        def __init__(self, spec: VersionSpec) -> None:
            self._spec = spec

        async def launch(self, name: str, told: Callable[[State], None]) -> Backend:
            told("warming")
            return make(self._spec)

    def means_of(spec: VersionSpec) -> Means:
        return Means(Launcher(spec), FakeWords(), TokenEstimate(), spec.foreign.max_model_len or CAPACITY.max_model_len)

    monkeypatch.setattr(assembly, "means_of", means_of)
    path = folder / "fleet.toml"
    whole = text if "[gateway]" in text else f"[gateway]\n{text}"
    whole = whole.replace("[gateway]\n", f'[gateway]\nadmin_port = 0\nstate_dir = "{folder / "state"}"\n', 1)
    path.write_text(whole)
    async with opened(Source(path, whole, over(parse(whole, path)), over)) as gateway:
        rig = Rig(gateway)
        await rig.ready()
        yield rig
