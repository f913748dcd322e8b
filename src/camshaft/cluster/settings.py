"""WorkerSettings: what a gateway tells a worker that it starts."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from camshaft.config import EngineConfig
from camshaft.errors import ConfigError

_MOST_BYTES = 1 << 20


class WorkerSettings(Struct, frozen=True, kw_only=True):
    """What a worker is told, as one line of JSON on its standard input. That stays open for as long as the gateway lives."""

    model: str = ""
    public_name: str = ""  # of the model, in metrics
    engine: EngineConfig = EngineConfig()
    drain_s: float = 60.0  # on SIGTERM
    warm_s: float = 60.0
    log_level: str = "info"
    socket: str = ""
    token: str = ""
    parent: int = 0  # its process id


def read_settings(fd: int) -> WorkerSettings:
    """The first line of a pipe. Raises ConfigError."""
    line = b""
    while not line.endswith(b"\n") and len(line) < _MOST_BYTES:
        data = os.read(fd, 65_536)
        if not data:
            raise ConfigError("a worker is started by a gateway, which tells it what to do; use `camshaft serve` or `camshaft up`")
        line += data
    try:
        return msgspec.json.decode(line, type=WorkerSettings)
    except msgspec.DecodeError as error:
        raise ConfigError(f"the settings of a worker could not be read: {error}") from None
