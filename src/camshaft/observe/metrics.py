"""The numbers that the process exports, as Prometheus reads them.

Names are `camshaft_` and then the name that vLLM's dashboards use, so that a dashboard needs one search and replace.
Every series carries `model_name`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from camshaft.observe.instruments import Family, Histogram, Value, counter, gauge, histogram

Stage = Literal["encode", "queue", "prefill", "decode", "detokenise", "flush", "send"]
STAGES: tuple[Stage, ...] = ("encode", "queue", "prefill", "decode", "detokenise", "flush", "send")

# Seconds. Fine at the bottom for a small model on a CPU, long at the top for a queue.
_TTFT = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
_GAP = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_LATENCY = (0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_STAGE = (1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600)
_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 65_536)


class StepParts(NamedTuple):
    """Where the time of steps went, in seconds of the engine thread."""

    plan: float  # deciding, and handing over what the decision released
    bind: float  # to arrays and back: slots, masks, packing, unpacking
    compute: float  # the model
    accept: float  # ids to sequences, text and events, and handing those over


class Steps(NamedTuple):
    """Some engine steps, told after them. Shares lie in [0, 1]; `ttft_s` and `gaps_s` have one entry per token that came out."""

    running: int
    waiting: int
    kv_usage: float  # share of the pool's blocks that are held by running sequences
    kv_cached: float  # share of them that hold a prefix and are in nobody's table: what the prompt cache takes
    kv_waste: float  # share of the held token places that hold no token
    n_tokens: Sequence[int] = ()  # computed by each step, prefill and decode together
    n_prompt: int = 0  # of them, prompt tokens
    ttft_s: Sequence[float] = ()
    gaps_s: Sequence[float] = ()  # seconds since the same sequence's previous token
    parts: StepParts = StepParts(0.0, 0.0, 0.0, 0.0)  # of all of them together


class Lifetime(NamedTuple):
    """One request that reached its end. Seconds; a phase that it never reached is 0."""

    reason: str  # stop, length, or an error's code
    e2e_s: float
    prefill_s: float
    decode_s: float
    n_prompt: int
    n_output: int


class _Load(NamedTuple):
    running: Family[Value]
    waiting: Family[Value]
    kv_usage: Family[Value]
    kv_cached: Family[Value]
    kv_waste: Family[Value]


class _Counts(NamedTuple):
    prefix_queries: Family[Value]
    prefix_hits: Family[Value]
    preemptions: Family[Value]
    prompt_tokens: Family[Value]
    generation_tokens: Family[Value]
    success: Family[Value]
    failure: Family[Value]
    rejections: Family[Value]
    evictions: Family[Value]
    step_parts: Family[Value]


class _Times(NamedTuple):
    ttft: Family[Histogram]
    gap: Family[Histogram]
    e2e: Family[Histogram]
    queue: Family[Histogram]
    prefill: Family[Histogram]
    decode: Family[Histogram]
    stage: Family[Histogram]


class _Sizes(NamedTuple):
    iteration: Family[Histogram]
    prompt: Family[Histogram]
    output: Family[Histogram]


class Metrics:
    """All families of one process. Owned by whoever assembles the process; nothing is global."""

    def __init__(self) -> None:
        self.load = _load()
        self.counts = _counts()
        self.times = _times()
        self.sizes = _sizes()
        self.http = counter("camshaft_http_requests_total", "Answered HTTP requests.", ("route", "status"))

    @property
    def families(self) -> tuple[Family[Value] | Family[Histogram], ...]:
        return (*self.load, *self.counts, *self.times, *self.sizes, self.http)

    def engine(self, model_name: str) -> EngineMetrics:
        """The series of one model."""
        return EngineMetrics(model_name, self)

    def render(self) -> bytes:
        """Prometheus text format 0.0.4."""
        lines = [line for family in self.families for line in family.lines()]
        return ("\n".join(lines) + "\n").encode()


class EngineMetrics:
    """What one engine reports. Each call costs a few microseconds at most and may come from any thread."""

    def __init__(self, model_name: str = "", metrics: Metrics | None = None) -> None:
        self.metrics = metrics if metrics is not None else Metrics()
        self._model = model_name
        m = self.metrics
        self._load = tuple(f.child(model_name) for f in m.load)
        self._prefix = (m.counts.prefix_queries.child(model_name), m.counts.prefix_hits.child(model_name))
        self._preemptions = m.counts.preemptions.child(model_name)
        self._tokens = (m.counts.prompt_tokens.child(model_name), m.counts.generation_tokens.child(model_name))
        self._times = tuple(f.child(model_name) for f in m.times[:-1])
        self._sizes = tuple(f.child(model_name) for f in m.sizes)
        # The series of closed label sets exist from the start, so that a rate over them is never undefined.
        self._stages = {name: m.times.stage.child(model_name, name) for name in STAGES}
        self._parts = tuple(m.counts.step_parts.child(model_name, part) for part in StepParts._fields)
        self._success = {reason: m.counts.success.child(model_name, reason) for reason in ("stop", "length")}

    def steps(self, done: Steps) -> None:
        """The numbers of some steps, after them, and what is held right now."""
        for shown, value in zip(self._load, done[:5], strict=True):
            shown.set(value)
        self._sizes[0].observe_all(done.n_tokens)
        for counted, amount in zip(
            (*self._tokens, *self._parts), (done.n_prompt, len(done.ttft_s) + len(done.gaps_s), *done.parts), strict=True
        ):
            counted.add(amount)
        self._times[0].observe_all(done.ttft_s)
        self._times[1].observe_all(done.gaps_s)

    def admitted(self, queue_s: float, *, n_prompt: int, n_cached: int) -> None:
        """A request entered the batch. Prefix queries and hits count tokens."""
        self._times[3].observe(queue_s)
        self._stages["queue"].observe(queue_s)
        self._prefix[0].add(n_prompt)
        self._prefix[1].add(n_cached)

    def preempted(self, n: int = 1) -> None:
        self._preemptions.add(n)

    def finished(self, life: Lifetime) -> None:
        """A request ended: `stop` and `length` count as success, anything else is an error's code."""
        done = self._success.get(life.reason)
        if done is not None:
            done.add()
        else:
            self.metrics.counts.failure.child(self._model, life.reason).add()
        _, _, e2e, _, prefill, decode = self._times
        e2e.observe(life.e2e_s)
        prefill.observe(life.prefill_s)
        decode.observe(life.decode_s)
        self._stages["prefill"].observe(life.prefill_s)
        self._stages["decode"].observe(life.decode_s)
        self._sizes[1].observe(life.n_prompt)
        self._sizes[2].observe(life.n_output)

    def refused(self, reason: str) -> None:
        """Turned away before the batch; `reason` is an error's code."""
        self.metrics.counts.rejections.child(self._model, reason).add()

    def evicted(self, kind: str, n: int = 1) -> None:
        """Cached blocks given up; `kind` is the eviction policy's class of block."""
        self.metrics.counts.evictions.child(self._model, kind).add(n)

    def stage(self, name: Stage, seconds: float) -> None:
        """How long a request spent in one stage, told once per request and stage."""
        self._stages[name].observe(seconds)


def _load() -> _Load:
    model = ("model_name",)
    return _Load(
        gauge("camshaft_num_requests_running", "Requests in the batch.", model),
        gauge("camshaft_num_requests_waiting", "Requests that wait for admission.", model),
        gauge("camshaft_kv_cache_usage_perc", "Share of KV blocks held by running requests; 1 is full.", model),
        gauge("camshaft_kv_cache_cached_perc", "Share of KV blocks that hold a prefix for later; they are given up when needed.", model),
        gauge("camshaft_kv_cache_waste_perc", "Share of held KV token places that hold no token.", model),
    )


def _counts() -> _Counts:
    model = ("model_name",)
    return _Counts(
        counter("camshaft_prefix_cache_queries_total", "Prompt tokens looked up in the prefix cache.", model),
        counter("camshaft_prefix_cache_hits_total", "Prompt tokens found in the prefix cache.", model),
        counter("camshaft_num_preemptions_total", "Sequences taken out of the batch to make room.", model),
        counter("camshaft_prompt_tokens_total", "Prompt tokens computed.", model),
        counter("camshaft_generation_tokens_total", "Tokens generated.", model),
        counter("camshaft_request_success_total", "Requests that finished.", (*model, "finished_reason")),
        counter("camshaft_request_failure_total", "Admitted requests that ended with an error.", (*model, "code")),
        counter("camshaft_admission_rejections_total", "Requests turned away before the batch.", (*model, "reason")),
        counter("camshaft_kv_cache_evictions_total", "Cached KV blocks given up.", (*model, "class")),
        counter("camshaft_step_seconds_total", "Time of the engine thread by part of a step, without idle time.", (*model, "part")),
    )


def _times() -> _Times:
    model = ("model_name",)
    return _Times(
        histogram("camshaft_time_to_first_token_seconds", "From arrival to the first token.", _TTFT, model),
        histogram("camshaft_inter_token_latency_seconds", "Between two tokens of a sequence.", _GAP, model),
        histogram("camshaft_e2e_request_latency_seconds", "From arrival to the end.", _LATENCY, model),
        histogram("camshaft_request_queue_time_seconds", "From arrival to admission.", _LATENCY, model),
        histogram("camshaft_request_prefill_time_seconds", "From admission to the first token.", _LATENCY, model),
        histogram("camshaft_request_decode_time_seconds", "From the first token to the last.", _LATENCY, model),
        histogram("camshaft_request_stage_seconds", "Where a request's time went.", _STAGE, (*model, "stage")),
    )


def _sizes() -> _Sizes:
    model = ("model_name",)
    return _Sizes(
        histogram("camshaft_iteration_tokens_total", "Tokens computed by one step.", _TOKENS, model),
        histogram("camshaft_request_prompt_tokens", "Prompt tokens of a request.", _TOKENS, model),
        histogram("camshaft_request_generation_tokens", "Tokens generated for a request.", _TOKENS, model),
    )
