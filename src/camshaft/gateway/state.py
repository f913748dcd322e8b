"""Store: what survives a restart, written by a thread of its own. A disk that is full, locked or broken never holds serving up."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from camshaft.errors import Unavailable
from camshaft.gateway import database
from camshaft.gateway.database import Accepted, Database
from camshaft.gateway.events import Happening
from camshaft.observe.instruments import counter, gauge
from camshaft.observe.threads import name_thread

log = logging.getLogger(__name__)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

MAX_WAITING = 10_000  # events that wait for the disk; the oldest are dropped then
MAX_READS = 64  # that wait for an answer
BATCH = 500  # events in one transaction
FIRST_RETRY_S = 0.25
LAST_RETRY_S = 30.0
READ_WAIT_S = 5.0
CLOSE_WAIT_S = 5.0


class StateMetrics:
    """How the state on disk is doing. Its families are shown with the gateway's."""

    def __init__(self) -> None:
        self.waiting = gauge("camshaft_state_waiting", "Events and snapshots that wait to be written.")
        self.lost = counter("camshaft_state_lost_total", "Events dropped because the disk would not take them for too long.")
        self.failures = counter("camshaft_state_failures_total", "Failed attempts to write or read the state on disk.")
        self.families = (self.waiting, self.lost, self.failures)
        for family in self.families:
            family.child()

    def render(self) -> bytes:
        """Prometheus text format 0.0.4."""
        return ("\n".join(line for family in self.families for line in family.lines()) + "\n").encode()


class Store:
    """Its calls may come from one thread, the event loop's; none of them waits for the disk but those that are awaited."""

    def __init__(self, path: Path, metrics: StateMetrics | None = None, told: Callable[[str], None] | None = None) -> None:
        """`told` hears what is wrong when that changes, "" when nothing is any more, in the store's own thread."""
        self.metrics = metrics or StateMetrics()
        self._told = told or (lambda trouble: None)
        self._path = path
        self._wake = threading.Condition()
        self._events: deque[Happening] = deque()
        self._snapshots: dict[str, bytes] = {}
        self._files: dict[float, Accepted] = {}  # by `at`
        self._known: dict[float, Accepted] = {}  # the last files, written or not, for a disk that loses them
        self._reads: deque[tuple[Callable[[Database], Any], Future[Any]]] = deque()
        self._closing = self._last_turn = False
        self._trouble = ""
        self._retry_s = 0.0  # 0: nothing is wrong
        self._db: Database | None = None  # the thread's own
        self._thread = threading.Thread(target=self._run, name="camshaft-state", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------------------------------------ for the loop

    @property
    def trouble(self) -> str:
        """What is wrong; "" when nothing is."""
        return self._trouble

    def note(self, happening: Happening) -> None:
        """An event, written soon. An events.Note."""
        with self._wake:
            if len(self._events) >= MAX_WAITING:
                self._events.popleft()
                self.metrics.lost.child().add()
            self._events.append(happening)
            self._wake.notify()

    def keep(self, name: str, data: object) -> None:
        """A snapshot: plain data, written soon. The last of a name counts."""
        encoded = msgspec.msgpack.encode(data)
        with self._wake:
            self._snapshots[name] = encoded
            self._wake.notify()

    async def recall(self, name: str) -> Any:
        """The snapshot of this name as plain data; None where there is none, or none that can be read. Raises Unavailable."""
        data = await self._ask(lambda db: db.snapshot(name))
        try:
            return None if data is None else msgspec.msgpack.decode(data)
        except msgspec.DecodeError:
            log.warning("the snapshot %s cannot be read and is left out", name)
            return None

    async def events(self, after: float = 0.0, before: float = 1e12, limit: int = 1_000) -> list[Happening]:
        """Those between the two moments that were written, oldest first, the latest `limit` of them. Raises Unavailable."""
        return await self._ask(lambda db: db.events(after, before, limit))

    async def last_at(self) -> float:
        """When the latest event that was written was. Raises Unavailable."""
        return await self._ask(lambda db: db.last_at())

    def keep_file(self, file: Accepted) -> None:
        """An accepted file, or what is known of it by now, written soon."""
        with self._wake:
            self._files[file.at] = file
            self._remember([file])
            self._wake.notify()

    async def files(self) -> list[Accepted]:
        """Accepted files, oldest first. Raises Unavailable."""
        found = await self._ask(lambda db: db.files())
        with self._wake:
            self._remember(found)
        return found

    def _remember(self, files: Sequence[Accepted]) -> None:
        known = self._known | {file.at: file for file in files}
        self._known = {at: known[at] for at in sorted(known)[-database.MAX_FILES :]}

    async def _ask(self, work: Callable[[Database], T]) -> T:
        """`work`, done by the thread after all that was noted before it. Raises Unavailable when that takes too long or fails."""
        future: Future[T] = Future()
        with self._wake:
            if self._closing or len(self._reads) >= MAX_READS:
                raise Unavailable("the gateway's state is busy; try again", retry_after_s=1.0)
            self._reads.append((work, future))
            self._wake.notify()
        try:
            async with asyncio.timeout(READ_WAIT_S):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise Unavailable(f"the gateway's state did not answer within {READ_WAIT_S:g} s", retry_after_s=1.0) from None

    async def close(self) -> None:
        """Writes what waits, as far as that takes no longer than a few seconds."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        await asyncio.to_thread(self._thread.join, CLOSE_WAIT_S)
        if self._events or self._snapshots:
            log.warning("%d events and %d snapshots could not be written: %s", len(self._events), len(self._snapshots), self._trouble)

    # ---------------------------------------------------------------------------------------------- for the thread

    def _run(self) -> None:
        name_thread("state")
        while self._wait():
            try:
                self._turn()
            except sqlite3.Error as error:
                self._failed(error)
            else:
                self._recovered()
        if self._db is not None:
            self._db.close()

    def _wait(self) -> bool:
        """Until there is something to do; False when it is time to end, which is after one turn that began with closing."""
        with self._wake:
            if self._last_turn:
                return False
            if self._retry_s:
                self._wake.wait_for(lambda: self._closing or self._reads, self._retry_s)
            else:
                self._wake.wait_for(lambda: self._closing or self._events or self._snapshots or self._files or self._reads)
            self._last_turn = self._closing
            return True

    def _turn(self) -> None:
        if self._db is not None and not self._db.is_there():
            log.error("the state in %s was taken away; a new one is begun, and the events until now are lost", self._path)
            self._db.close()
            self._db = None
            with self._wake:
                self._files = self._known | self._files
        if self._db is None:
            self._db = Database(self._path)
        try:
            self._write(self._db)
        finally:
            # A disk that takes nothing more can still be read.
            self._answer(self._db)

    def _write(self, db: Database) -> None:
        while True:
            with self._wake:
                batch = [self._events[i] for i in range(min(BATCH, len(self._events)))]
                snapshots, files = dict(self._snapshots), dict(self._files)
            if not batch and not snapshots and not files:
                return
            db.write(batch, snapshots, list(files.values()))
            with self._wake:
                written = {id(h) for h in batch}
                # Some may have been dropped meanwhile, so that the front is not what it was.
                while self._events and id(self._events[0]) in written:
                    self._events.popleft()
                _drop(self._snapshots, snapshots)
                _drop(self._files, files)
                self.metrics.waiting.child().set(len(self._events) + len(self._snapshots))

    def _answer(self, db: Database) -> None:
        while True:
            with self._wake:
                if not self._reads:
                    return
                work, future = self._reads.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(work(db))
            except sqlite3.Error as error:
                future.set_exception(_unavailable(error))
                raise
            except (zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
                future.set_exception(_unavailable(error))

    def _failed(self, error: sqlite3.Error) -> None:
        self.metrics.failures.child().add()
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if self._db is not None and code == sqlite3.SQLITE_FULL:
            self._make_room(self._db)
        elif self._db is not None and code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            self._db.close()
            self._db = None
        self.metrics.waiting.child().set(len(self._events) + len(self._snapshots))
        if database.is_damage(error):
            self._begin_anew(error)
        elif not self._retry_s:
            log.error("the state in %s cannot be written (%s); events are kept in memory until it can", self._path, error)
        if not self._trouble:
            self._told(str(error))
        self._trouble = str(error)
        self._retry_s = min(max(2 * self._retry_s, FIRST_RETRY_S), LAST_RETRY_S)
        with self._wake:
            waiting = list(self._reads)
            self._reads.clear()
        for _, future in waiting:
            if future.set_running_or_notify_cancel():
                future.set_exception(_unavailable(error))

    def _make_room(self, db: Database) -> None:
        try:
            db.shrink()
        except sqlite3.Error:
            log.debug("no room could be made in %s", self._path)

    def _begin_anew(self, error: sqlite3.Error) -> None:
        try:
            aside = database.set_aside(self._path)
        except OSError as failure:
            log.error("the state in %s is damaged (%s) and cannot be set aside: %s", self._path, error, failure)
        else:
            log.error("the state in %s was damaged (%s); it lies in %s now, and a new one is begun", self._path, error, aside.name)

    def _recovered(self) -> None:
        if self._retry_s:
            log.warning("the state in %s is written again", self._path)
            self._trouble, self._retry_s = "", 0.0
            self._told("")


def _drop(waiting: dict[K, V], written: dict[K, V]) -> None:
    """Takes out what was written, unless something newer has its name by now."""
    for key, value in written.items():
        if waiting.get(key) is value:
            del waiting[key]


def _unavailable(error: Exception) -> Unavailable:
    return Unavailable(f"the gateway's state cannot be read: {error}", retry_after_s=1.0)
