"""The central types: what a request is, what an engine answers, what a step computes.

Everything here is plain data or a protocol. A new reader can guess the rest of the project from this file.
Nothing here imports numpy: decisions are integers and times, arithmetic is arrays, and they meet in the engine loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

# --------------------------------------------------------------------------------------------------------- requests


class TextPrompt(Struct, frozen=True, tag="text"):
    """Raw text. Special tokens inside it are text, never control."""

    text: str
    add_special_tokens: bool = True


class TokenPrompt(Struct, frozen=True, tag="ids"):
    """Token ids, used as they are."""

    ids: tuple[int, ...]


class ChatPrompt(Struct, frozen=True, tag="chat"):
    """A conversation for the model's chat template. `messages` and `tools` are OpenAI-shaped plain dicts, checked at the edge."""

    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    add_generation_prompt: bool = True
    template_kwargs: dict[str, Any] = {}
    continue_final_message: bool = False  # the prompt ends inside the last message, which the model goes on with
    tool_choice: str = ""  # "", auto, none, required, or `function:NAME`; our engines are held to it by a grammar, foreign ones are told
    single_call: bool = False  # at most one call in an answer
    reasoning_effort: str = ""  # as the client said it, for a foreign server; our templates read it from `template_kwargs`


Prompt = TextPrompt | TokenPrompt | ChatPrompt


class Grammar(Struct, frozen=True):
    """What the output must match. `source` is a JSON schema, a regular expression or a Lark grammar by `kind`."""

    kind: Literal["json_object", "json_schema", "regex", "lark"]
    source: str = ""
    strict: bool = True  # what a foreign server is told of a schema; our engines always hold to it


class SamplingParams(Struct, frozen=True, kw_only=True):
    """How the next token is drawn and when to stop. Greedy is `temperature == 0`.

    Ranges are enforced by `camshaft.sample.params.check`, which names the field and the way out.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0  # 0 turns it off
    min_p: float = 0.0
    repetition_penalty: float = 1.0  # over prompt and output
    presence_penalty: float = 0.0  # over output only, as OpenAI defines it
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None  # None is drawn once at the edge and kept with the request
    n: int = 1  # becomes n requests at the edge, each with its `choice`
    max_tokens: int | None = None  # None: to the end of the context
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: int | None = None  # None: not asked; k: the sampled token's and the k likeliest (k may be 0)
    prompt_logprobs: int | None = None  # the same for the prompt; such a request reads nothing from the prefix cache
    grammar: Grammar | None = None


class Resume(Struct, frozen=True):
    """A stream carried over from elsewhere: these ids count as output already given."""

    ids: tuple[int, ...]
    n_chars_sent: int


class Request(Struct, frozen=True, kw_only=True):
    """One answer that somebody waits for. Never changes after the API edge; safe on a wire."""

    id: str
    prompt: Prompt
    sampling: SamplingParams = SamplingParams()
    model: str = ""
    choice: int = 0  # which of n siblings; enters the random key
    siblings: str = ""  # id shared by the n requests of one call; "" where there is only one
    priority: int = 0  # lower is sooner: 0 realtime, 1 batch, ...
    deadline_s: float | None = None  # seconds from arrival to the terminal event
    tenant: str = ""
    cache_salt: str = ""  # joins the prefix hash, so that no other tenant can find this KV
    session: str = ""  # a conversation, for soft KV retention
    arrived_at: float = 0.0  # Clock.now() at the edge; 0 is filled in on arrival
    resume: Resume | None = None
    trace: str = ""  # the caller's W3C traceparent, for who continues its trace

    def limit_s(self, longest_s: float) -> float:
        """Seconds from its arrival to its end where nobody may take longer than `longest_s`."""
        return longest_s if self.deadline_s is None else min(longest_s, self.deadline_s)

    @property
    def owner(self) -> str:
        """Who may share what is remembered of its prompt: tenant and salt, written so that no two pairs read alike."""
        return f"{len(self.tenant)}:{self.tenant}{self.cache_salt}"


# ----------------------------------------------------------------------------------------------------------- events


class TopLogprob(Struct, frozen=True):
    """One alternative. `token` is its bytes, which may not be valid UTF-8 on their own."""

    id: int
    token: bytes
    logprob: float


class TokenLogprob(Struct, frozen=True):
    """The chosen token and its likeliest rivals, from the model's raw distribution (before any sampling parameter)."""

    id: int
    token: bytes
    logprob: float | None  # None for a prompt's first token, which nothing predicts
    top: tuple[TopLogprob, ...] = ()
    ends: bool = False  # an end of sequence or a stop token id: the output's last, and no part of its text


class Usage(Struct, frozen=True):
    n_prompt: int
    n_cached: int  # prompt tokens taken from the prefix cache
    n_output: int


class ErrorInfo(Struct, frozen=True):
    """A failure as the wire carries it. `errors.from_info` turns it back into the exception."""

    code: str
    message: str
    status: int
    param: str | None = None
    retry_after_s: float | None = None


class Route(Struct, frozen=True):
    """Which way a request took through the layers above the engine. "" where there is no such layer."""

    version: str = ""
    replica: str = ""
    model: str = ""  # the one that answers, where it is not the one that was asked for
    n_tries: int = 1  # replicas asked, the one that answers included


class Started(Struct, frozen=True, tag="started"):
    """Admitted to the batch."""

    n_prompt: int
    n_cached: int  # -1: it cannot tell yet; the usage at the end may
    queue_s: float
    route: Route | None = None


class Scored(Struct, frozen=True, tag="scored"):
    """The prompt's own log-probabilities, once, before the first Delta; only for `prompt_logprobs`."""

    logprobs: tuple[TokenLogprob, ...]


class CallDelta(Struct, frozen=True):
    """A piece of a tool call from a server that takes calls apart itself. `name` opens call number `number`."""

    number: int
    name: str = ""
    arguments: str = ""


class Delta(Struct, frozen=True, tag="delta"):
    """New output. `text` may be empty while bytes or a possible stop string are held back; `ids` always arrive with their step.

    Our engines give text and ids, and the edge reads reasoning and tool calls out of the text. A foreign server has read them
    already and gives no ids: then `reasoning` and `calls` carry them, and `n_tokens` says how many tokens this is, about.
    """

    text: str
    ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()
    reasoning: str = ""
    calls: tuple[CallDelta, ...] = ()
    n_tokens: int = 0  # only where there are no ids


class Finished(Struct, frozen=True, tag="finished"):
    """`matched` is the stop string or stop token id that ended it; None for end of sequence and for length."""

    reason: Literal["stop", "length", "content_filter"]
    usage: Usage
    matched: str | int | None = None
    route: Route | None = None  # where it came another way than its Started said: the last replica, and how many were asked


class Failed(Struct, frozen=True, tag="failed"):
    error: ErrorInfo
    route: Route | None = None  # of a request that came as far as a replica


# Order: Started? Scored? Delta* (Finished | Failed). Exactly one terminal event, always.
Event = Started | Scored | Delta | Finished | Failed


# ------------------------------------------------------------------------------------------------------------ steps


class KVGroup(Struct, frozen=True):
    """Layers whose KV lives and dies together. `window` is in tokens; None keeps everything."""

    n_layers: int
    window: int | None = None


class Capacity(Struct, frozen=True):
    """What a loaded runner can hold. All groups draw blocks of equal bytes from one pool of `n_blocks`; block 0 is never handed out."""

    vocab_size: int
    max_model_len: int
    block_size: int  # tokens
    n_blocks: int
    groups: tuple[KVGroup, ...]
    max_slots: int  # sequences that may be open at once
    max_tokens: int  # tokens in one step


class TablePatch(Struct, frozen=True, array_like=True, gc=False):
    """Put `ids` at `index` of this slot's block table for `group`, before computing. Id 0 means gone (behind the window)."""

    group: int
    index: int
    ids: tuple[int, ...]


class Row(Struct, frozen=True, array_like=True, gc=False):
    """`len(ids)` tokens of one sequence at positions start, start+1, ... Prefill, a chunk of it and decode differ only in numbers.

    n_sample: how many trailing positions are sampled (0 for a chunk that does not end the prompt, else 1).
    score: prompt log-probabilities wanted for the new positions that have a known next prompt token.
    """

    slot: int
    start: int
    ids: tuple[int, ...]
    n_sample: int
    patches: tuple[TablePatch, ...] = ()
    score: bool = False

    @property
    def n_new(self) -> int:
        return len(self.ids)


class BlockCopy(Struct, frozen=True, array_like=True, gc=False):
    """Copy a whole block (all its layers) before the step computes: the write half of copy on write."""

    src: int
    dst: int


class StepPlan(Struct, frozen=True, array_like=True, gc=False):
    """What one step computes. Plain ints, printable on one line, picklable."""

    rows: tuple[Row, ...]
    copies: tuple[BlockCopy, ...] = ()

    @property
    def n_tokens(self) -> int:
        return sum(len(r.ids) for r in self.rows)


class RawLogprob(Struct, frozen=True, array_like=True, gc=False):
    """A runner's log-probability: no bytes, since a runner knows no tokenizer. `top` is (id, logprob), likeliest first."""

    id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class RowResult(Struct, frozen=True, array_like=True, gc=False):
    """One per plan row, in plan order. A sampled id of -1 says that the row's logits were not finite: fail that request alone."""

    ids: tuple[int, ...]  # n_sample of them
    logprobs: tuple[RawLogprob, ...] = ()  # as many, when the slot's params ask for logprobs
    scores: tuple[RawLogprob, ...] = ()  # for a scored row: entry i is about the token at position start + i + 1


class StepResult(Struct, frozen=True, array_like=True, gc=False):
    rows: tuple[RowResult, ...]
    step_s: float


# A grammar's allowed tokens: ceil(vocab_size / 32) little-endian uint32 words; bit i of word w is token 32w + i.
Mask = memoryview | bytes | bytearray


# -------------------------------------------------------------------------------------------------------- protocols


class Clock(Protocol):
    """Time is handed in, so that a simulator can own it."""

    def now(self) -> float:
        """Seconds, monotonic."""
        ...


class Runner(Protocol):
    """Computes steps. Owns every array; knows nothing of requests, text or queues. Called from one thread only.

    `invariant` promises design section 5: equal `numerics_id` means equal logits bit for bit, whatever the schedule.
    """

    invariant: bool
    numerics_id: str

    def capacity(self) -> Capacity: ...

    def open(self, slot: int, params: SamplingParams, choice: int, prompt_ids: Sequence[int], output_ids: Sequence[int]) -> None:
        """Bind a slot. `params.seed` is never None here. Ids already known let penalties and randomness go on where they were."""
        ...

    def release(self, slot: int) -> None:
        """Forget a slot; idempotent."""
        ...

    def step(self, plan: StepPlan, masks: Mapping[int, Mask]) -> StepResult:
        """Compute the plan. `masks` is keyed by slot and applies to that row's sampled positions."""
        ...

    def close(self) -> None: ...


class ReplicaInfo(Struct, frozen=True):
    """What a replica says of itself once it is loaded. 0 and "" where it cannot tell."""

    numerics_id: str = ""  # equal ones give equal answers, so a stream may move between them; "" moves nowhere
    max_model_len: int = 0  # tokens, prompt and answer together
    max_num_seqs: int = 0  # sequences that run at once
    max_num_batched_tokens: int = 0  # tokens a step
    kv_tokens: int = 0  # that its KV cache holds
    block_size: int = 0  # tokens


class Load(Struct, frozen=True):
    """What a replica reports with each heartbeat. -1 where it cannot tell."""

    running: int = -1
    waiting: int = -1
    kv_usage: float = -1.0  # share of its KV blocks that running requests hold
    utilisation: float = -1.0  # share of its compute (cores or GPU) in use, 0 to 1
    at: float = 0.0  # Clock.now() of the reader when it came


class Health(Struct, frozen=True):
    ready: bool
    running: int
    waiting: int
    detail: str = ""


class Upstream(Protocol):
    """Everything that answers a request has this shape: an engine, a replica, a cache, a canary split."""

    def stream(self, request: Request) -> AsyncIterator[Event]:
        """Events in order, exactly one terminal. Closing the iterator cancels the work and frees what it held."""
        ...

    async def health(self) -> Health: ...

    async def close(self) -> None: ...
