"""ProcessLauncher: starts our own engine in a process of its own."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Callable, Sequence

import msgspec

from camshaft.clock import SystemClock
from camshaft.cluster.backend import State
from camshaft.cluster.child import Child
from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.meeting import Meeting
from camshaft.cluster.remote import ProcessBackend, Rules
from camshaft.cluster.settings import WorkerSettings
from camshaft.errors import Unavailable
from camshaft.types import Clock

log = logging.getLogger(__name__)

# -P: a file in the working directory must not stand in for a module.
COMMAND = (sys.executable, "-P", "-m", "camshaft.cli.entry", "worker")


class ProcessLauncher:
    """Starts workers that all load the same model with the same settings."""

    def __init__(
        self, settings: WorkerSettings, config: ReplicaConfig, *, clock: Clock | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        """`command` runs a worker that is told its settings on its standard input."""
        self._settings = settings
        self._config = config
        self._clock = clock or SystemClock()
        self._command = command

    async def launch(self, name: str, told: Callable[[State], None]) -> ProcessBackend:
        """Raises what the worker says is wrong, or Unavailable with its last words. See Launcher."""
        config = self._config
        meeting = Meeting()
        backend: ProcessBackend | None = None
        child: Child | None = None
        ready = False
        try:
            child = await Child.start(self._command, os.environ, lambda line: log.info("replica=%s says: %s", name, line))
            backend = ProcessBackend(name, child, Rules(config, self._settings.engine.default_deadline_s, self._clock))
            token = secrets.token_hex(16)
            child.give(self._word(meeting, token))
            async with asyncio.timeout(config.start_s):
                await backend.meet(meeting.listener, token)
            told("warming")
            async with asyncio.timeout(config.warm_s):
                await backend.ready()
            ready = True
            return backend
        except TimeoutError:
            heard = f"; it said: {child.tail}" if child is not None and str(child.tail) else ""
            what, limit_s = ("warm", config.warm_s) if backend is not None and backend.is_loaded else ("loaded", config.start_s)
            raise Unavailable(f"{name} was not {what} within {limit_s:g} s{heard}") from None
        except OSError as error:
            raise Unavailable(f"{name} could not be started: {error}") from None
        finally:
            meeting.close()
            if backend is not None and not ready:
                await backend.kill()

    def _word(self, meeting: Meeting, token: str) -> bytes:
        settings = msgspec.structs.replace(self._settings, socket=str(meeting.path), token=token, parent=os.getpid())
        return msgspec.json.encode(settings) + b"\n"
