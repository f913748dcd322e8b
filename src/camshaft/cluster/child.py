"""Child: a process that we started and that does not outlive us."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

_LINES = 20
_LINE_CHARS = 400
_SHOWN = 3  # lines of an error
_READ_BYTES = 65_536
_KILL_WAIT_S = 10.0  # a killed process is gone as soon as the system gets round to it


class Tail:
    """The last lines of what somebody said, bounded."""

    def __init__(self, said: Callable[[str], None] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=_LINES)
        self._said = said
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._add(line)
        self._rest = rest[-4 * _LINE_CHARS :]

    def end(self) -> None:
        """What was said last needs no newline."""
        self._add(self._rest)
        self._rest = b""

    def _add(self, raw: bytes) -> None:
        line = "".join(c for c in raw.decode(errors="replace").strip()[:_LINE_CHARS] if c.isprintable())
        if line:
            self.lines.append(line)
            if self._said is not None:
                self._said(line)

    def __str__(self) -> str:
        """On one line; "" where nothing was said."""
        return " | ".join([*self.lines][-_SHOWN:])


class Child:
    """Its standard input is a pipe that only we hold: it reads to the end of it when we are gone, however we went.

    A session of its own, so that Ctrl-C in our terminal is ours alone to deal with. What it writes to stderr is kept, bounded.
    """

    def __init__(self, process: Process, tail: Tail) -> None:
        self._process = process
        self.tail = tail
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, command: Sequence[str], env: Mapping[str, str], said: Callable[[str], None] | None = None) -> Child:
        """Raises OSError. `said` hears each line of its stderr."""
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=DEVNULL, stderr=PIPE, env=dict(env), start_new_session=True
        )
        return cls(process, Tail(said))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    def give(self, data: bytes) -> None:
        """Write to its standard input, which stays open."""
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def exited(self) -> str:
        """Returns when it has ended, with how; its last words are in `tail` then."""
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):  # a grandchild may hold the pipe open
                await asyncio.shield(self._reading)
        return f"it was killed by {_signal_name(-code)}" if code < 0 else f"it ended with status {code}"

    def send(self, number: signal.Signals) -> None:
        """Does nothing once it has ended."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def close(self, patience_s: float) -> None:
        """Wait so long for it to end by itself, then kill it. Afterwards nothing of it is left. Idempotent."""
        try:
            async with asyncio.timeout(patience_s):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.send(signal.SIGKILL)
        try:
            async with asyncio.timeout(_KILL_WAIT_S):
                await self._process.wait()
                await asyncio.shield(self._reading)
        except TimeoutError:
            pass
        finally:
            self._reading.cancel()
            assert self._process.stdin is not None
            self._process.stdin.close()

    async def _read(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_READ_BYTES):
            self.tail.feed(data)
        self.tail.end()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
