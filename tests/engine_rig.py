"""A rig for engine tests: an EngineLoop over a FakeRunner and a clock that is turned by hand, with no thread."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import msgspec

from byte_codec import ByteCodec
from camshaft.clock import ManualClock
from camshaft.config import EngineConfig
from camshaft.engine.job import Job
from camshaft.engine.loop import EngineLoop, Parts
from camshaft.engine.output import FlushRules, Output
from camshaft.runners.fake import FakeOptions, FakeRunner
from camshaft.sample.grammar import GrammarCompiler
from camshaft.sched.sequence import Sequence
from camshaft.types import Capacity, Delta, Event, Failed, Finished, KVGroup, Request, SamplingParams, TokenPrompt

CODEC = ByteCodec()
ROOMY = Capacity(vocab_size=260, max_model_len=512, block_size=4, n_blocks=257, groups=(KVGroup(1),), max_slots=8, max_tokens=32)


class ListSink:
    """Keeps the events. `reader_left`: nobody reads any more."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reader_left = False

    def put(self, event: Event) -> None:
        self.events.append(event)

    def send(self) -> bool:
        return not self.reader_left

    @property
    def terminal(self) -> Finished | Failed | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, (Finished, Failed)) else None

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(i for e in self.events if isinstance(e, Delta) for i in e.ids)

    @property
    def text(self) -> str:
        return "".join(e.text for e in self.events if isinstance(e, Delta))


class Rig:
    """Drives one loop step by step."""

    def __init__(self, capacity: Capacity = ROOMY, options: FakeOptions | None = None, **settings: object) -> None:
        self.clock = ManualClock(100.0)
        self.runner = FakeRunner(capacity, options or FakeOptions(step_s=0.01, sleep=self.clock.advance, eos_id=256))
        self.config = EngineConfig(**settings)  # type: ignore[arg-type]
        self.loop = EngineLoop(Parts(self.runner, self.config, self.clock))
        self.grammars = GrammarCompiler(CODEC, capacity.vocab_size)
        self._keys = 0

    @property
    def scheduler(self):  # type: ignore[no-untyped-def]
        return self.loop.scheduler

    def job(self, prompt: Seq[int], **fields: object) -> Job:
        """A job that is not submitted. `fields` are Request's; `sampling` defaults to 8 greedy tokens."""
        self._keys += 1
        sampling = fields.pop("sampling", None) or SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
        assert isinstance(sampling, SamplingParams)
        if sampling.seed is None:
            sampling = msgspec.structs.replace(sampling, seed=self._keys)
        id = str(fields.pop("id", f"r{self._keys}"))
        request = Request(id=id, prompt=TokenPrompt(tuple(prompt)), sampling=sampling, **fields)  # type: ignore[arg-type]
        seq = Sequence(self._keys, request, prompt, request.arrived_at or self.clock.now())
        output = Output(request, prompt, CODEC, FlushRules.of(self.config))
        matcher = self.grammars.matcher(sampling.grammar) if sampling.grammar else None
        return Job(seq, output, ListSink(), matcher)

    def submit(self, prompt: Seq[int], **fields: object) -> Job:
        job = self.job(prompt, **fields)
        self.loop.submit(job)
        return job

    def check(self) -> None:
        self.loop.scheduler.check()
        open_slots = set(self.runner._slots)
        assert open_slots >= {s.slot for s in self.scheduler.running} - {s.slot for s in self.scheduler._opened}

    def run(self, most: int = 5000) -> None:
        """Until nothing is left to do. Fails where that takes more steps than `most`."""
        for _ in range(most):
            self.loop.turn()
            self.check()
            if not self.loop.jobs:
                assert not self.loop.turn(), "a step without a job"  # as an engine does before it sleeps
                return
        raise AssertionError(f"{len(self.loop.jobs)} jobs did not end in {most} steps")


def sink_of(job: Job) -> ListSink:
    assert isinstance(job.sink, ListSink)
    return job.sink


def alone(prompt: Seq[int], sampling: SamplingParams, capacity: Capacity = ROOMY, choice: int = 0) -> ListSink:
    """What a request answers when it has an engine to itself, without a prefix cache."""
    rig = Rig(capacity, prefix_caching=False)
    job = rig.submit(prompt, sampling=sampling, choice=choice)
    rig.run()
    return sink_of(job)
