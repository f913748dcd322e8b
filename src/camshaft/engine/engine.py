"""Engine: an EngineLoop on a thread of its own, and the inbox through which others reach it."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, TypeVar

from camshaft.engine.job import Job
from camshaft.engine.loop import EngineLoop, Parts
from camshaft.errors import CamshaftError, Draining, EngineFault
from camshaft.observe.threads import name_thread
from camshaft.types import Failed, Health

log = logging.getLogger(__name__)
T = TypeVar("T")

_LONGEST_SLEEP_S = 60.0


class Message(NamedTuple):
    """Something to do between two steps. `submitted`: the job that it hands over, which must end even if this is never done."""

    do: Callable[[], object]
    submitted: Job | None = None


class Engine:
    """Starts its thread at once. Every method may be called from any thread, and none of them waits for a step but `ask` and `close`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._loop = EngineLoop(parts)
        self.limits = self._loop.scheduler.limits
        self.pool = self._loop.kv.pool
        self.metrics = self._loop.report.metrics
        self._inbox: deque[Message] = deque()
        self._news = threading.Condition()
        self._closing = False
        self._dead = False
        self._turn_at: float | None = None  # when the turn began that is going on now
        self._thread = threading.Thread(target=self._run, name="camshaft-engine", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Events go to the job's sink from now on; exactly one of them is terminal."""
        if not self._tell(Message(lambda: self._loop.submit(job), job)):
            self._refuse(job)

    def abort(self, job: Job) -> None:
        """Free what the job holds within one step. Idempotent."""
        self._tell(Message(lambda: self._loop.abort(job)))

    def ask(self, question: Callable[[EngineLoop], T], timeout_s: float = 30.0) -> T:
        """Run `question` between two steps on the engine thread, and wait for its answer."""
        answer: Future[T] = Future()

        def run() -> None:
            if answer.set_running_or_notify_cancel():
                answer.set_result(question(self._loop))

        if not self._tell(Message(run)):
            raise Draining("the engine has stopped")
        return answer.result(timeout_s)

    def check(self) -> None:
        """Prove the books, between two steps. Raises AssertionError."""
        error = self.ask(_check)
        if error is not None:
            raise error

    def health(self) -> Health:
        scheduler = self._loop.scheduler
        alive = not (self._dead or self._closing)
        detail = "stopped after a fault" if self._dead else "shutting down" if self._closing else ""
        return Health(alive, len(scheduler.running), len(scheduler.waiting), detail)

    @property
    def step_s(self) -> float:
        """For how long the step has been computed that is being computed now; 0 where there is none."""
        began = self._turn_at
        return 0.0 if began is None else max(0.0, self._parts.clock.now() - began)

    def close(self, timeout_s: float = 30.0) -> None:
        """End what still runs with Draining, stop the thread, close the runner. Idempotent."""
        with self._news:
            self._closing = True
            self._news.notify()
        self._thread.join(timeout_s)

    def _last_word(self) -> CamshaftError:
        if self._dead:
            return EngineFault("the engine has stopped after a fault; restart the server")
        return Draining("the engine is shutting down; try another replica")

    # ---------------------------------------------------------------------------------------------------- engine thread

    def _tell(self, message: Message) -> bool:
        with self._news:
            if self._closing or self._dead:
                return False
            self._inbox.append(message)
            self._news.notify()
        return True

    def _run(self) -> None:
        name_thread("engine")
        clean = False
        try:
            while not self._closing:
                self._turn_at = self._parts.clock.now()
                self._drain()
                if not self._loop.turn():
                    self._turn_at = None
                    self._sleep()
            clean = True
        finally:
            # Also on the way out of a bug of ours: nobody may be left waiting.
            with self._news:
                self._dead = not clean
                self._closing = True
            if clean:
                self._drain()
                self._loop.end_all(self._last_word())
            else:
                self._loop.bury(self._last_word())
                self._refuse_inbox()
            self._parts.runner.close()

    def _drain(self) -> None:
        while self._inbox:
            self._inbox.popleft().do()

    def _refuse_inbox(self) -> None:
        while self._inbox:
            submitted = self._inbox.popleft().submitted
            if submitted is not None:
                self._refuse(submitted)

    def _refuse(self, job: Job) -> None:
        job.sink.put(Failed(self._last_word().info()))
        job.sink.send()

    def _sleep(self) -> None:
        """Until something comes in or a timer is due."""
        wake_at = self._loop.wake_at()
        timeout_s = _LONGEST_SLEEP_S if wake_at is None else min(_LONGEST_SLEEP_S, max(0.001, wake_at - self._parts.clock.now()))
        with self._news:
            if not self._inbox and not self._closing:
                self._news.wait(timeout_s)


def _check(loop: EngineLoop) -> AssertionError | None:
    try:
        loop.scheduler.check()
    except AssertionError as error:
        return error
    return None
