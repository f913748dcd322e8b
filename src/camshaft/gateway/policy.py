"""Policy: which of the replicas that may be asked gets a request. Sees numbers, answers with a name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from camshaft.config import opt, suggest
from camshaft.errors import ConfigError


@dataclass(frozen=True)
class RouteConfig:
    """Which replica of a version gets a request."""

    policy: str = opt("prefix_cost", "prefix_cost, least_tokens, round_robin, or yours as module:Class")
    decode_weight: float = opt(2.0, "what an expected output token counts beside a prompt token", lo=0, hi=1000)
    miss_weight: float = opt(3.0, "what computing a prompt token again counts beside one that waits already; prefix_cost", lo=0, hi=1000)
    lately_weight: float = opt(0.03, "what a token computed in the last minute counts beside one that waits; prefix_cost", lo=0, hi=10)
    request_tokens: int = opt(32, "prompt tokens that a request counts for by itself, whatever its length", lo=0, hi=100_000)
    room_s: float = opt(1.0, "prompt tokens sent ahead to a replica: what it computes in so many seconds", lo=0.01, hi=3600)
    seqs: int = opt(32, "sequences at once for a replica that does not say how many it runs", lo=1, hi=100_000)
    prefix_tokens: int = opt(200_000, "tokens remembered of a replica that does not say what its KV cache holds", lo=0, hi=1_000_000_000)
    slow_start_s: float = opt(10.0, "how long a new replica's share grows, while there are older ones; 0 turns it off", lo=0, hi=3600)
    fresh_s: float = opt(3.0, "how long a replica's report is believed", lo=0.1, hi=3600)
    half_s: float = opt(5.0, "busy seconds after which a measurement of speed counts half", lo=0.1, hi=3600)
    usual_per_s: float = opt(1000.0, "prompt tokens a second before anything was measured", lo=0.1, hi=1e9)
    lease_s: float = opt(3600.0, "a request in flight for longer than this was lost track of; above every deadline", lo=1, hi=1e6)


BLIND = ("least_tokens", "round_robin")  # policies that do not look at prefixes


class Job(NamedTuple):
    """A request as routing sees it. `blocks` is its prompt's hash chain (prefix.py), empty where there is none."""

    blocks: tuple[int, ...] = ()
    n_prompt: int = 0  # tokens
    n_output: int = 0  # tokens, expected
    rank: int = 0  # class, lower is better
    numerics_id: str = ""  # only a replica that computes alike; "" takes any


class Candidate(NamedTuple):
    """One replica in one job's eyes. Tokens; sums over all that is in flight there."""

    name: str
    n_running: int  # requests sent and not ended, those of others that it reports included
    n_waiting: float  # prompt tokens still to compute there
    n_decode: int  # output tokens still expected there
    n_fresh: float  # of this job's prompt, what its KV cache is not believed to hold
    n_lately: float  # prompt tokens computed there, those of a minute ago counting half
    prefill_per_s: float  # tokens, measured; the pool's mean until then
    decode_per_s: float  # tokens of all streams together, measured; 0 until then
    share: float  # of its speed that counts: less in its slow start, and where others use its machine; in (0, 1]
    turn: int  # grows with each placement: the smallest one has waited longest


class Policy(Protocol):
    def choose(self, job: Job, candidates: Sequence[Candidate]) -> str:
        """The name of one of `candidates`, of which there is at least one."""
        ...


class RoundRobin:
    """The one that was not asked for longest."""

    def choose(self, job: Job, candidates: Sequence[Candidate]) -> str:
        return min(candidates, key=lambda c: c.turn).name


class LeastTokens:
    """The one that would be done first, were there no prefix caches."""

    def __init__(self, config: RouteConfig) -> None:
        self._config = config

    def choose(self, job: Job, candidates: Sequence[Candidate]) -> str:
        return min(candidates, key=lambda c: (self._cost(job, c), c.turn)).name

    def _cost(self, job: Job, c: Candidate) -> float:
        return seconds(self._config, job, c, job.n_prompt)


class PrefixCost:
    """The one that would be done first, given what each holds of the prompt already.

    Computing a token again counts more than one that waits, since all who come later wait for it too: about 1 / (1 - utilisation) times.
    Work done lately counts a little: the conversations that it was for come back to where their prefixes are, so new ones go elsewhere.
    """

    def __init__(self, config: RouteConfig) -> None:
        self._config = config

    def choose(self, job: Job, candidates: Sequence[Candidate]) -> str:
        return min(candidates, key=lambda c: (self._cost(job, c), c.turn)).name

    def _cost(self, job: Job, c: Candidate) -> float:
        own = self._config.miss_weight * c.n_fresh + self._config.lately_weight * c.n_lately
        return seconds(self._config, job, c, own)


def seconds(config: RouteConfig, job: Job, c: Candidate, n_own: float) -> float:
    """Until the replica is through with all that is there and with this job, whose own part counts as `n_own` tokens."""
    tokens = c.n_waiting + n_own + config.decode_weight * (c.n_decode + job.n_output) + config.request_tokens * (c.n_running + 1)
    return tokens / (c.prefill_per_s * c.share)


def make_policy(config: RouteConfig) -> Policy:
    """The policy that the settings name. Raises ConfigError for one that is not there or does not work."""
    name = config.policy
    if name == "round_robin":
        return RoundRobin()
    if name == "least_tokens":
        return LeastTokens(config)
    if name == "prefix_cost":
        return PrefixCost(config)
    if ":" not in name:
        raise ConfigError(f"unknown routing policy {name!r}{suggest(name, ('prefix_cost', *BLIND))}; yours is module:Class")
    return _imported(name)


def _imported(path: str) -> Policy:
    module_name, _, class_name = path.partition(":")
    try:
        policy: Policy = getattr(importlib.import_module(module_name), class_name)()
        # Asked once before any request depends on it, with a job that has nothing to go by.
        answer = policy.choose(
            Job(), [Candidate("first", 0, 0.0, 0, 0.0, 0.0, 1.0, 0.0, 1.0, 0), Candidate("second", 1, 9.0, 9, 0.0, 0.0, 1.0, 0.0, 1.0, 1)]
        )
    except (ImportError, AttributeError, TypeError, ValueError, LookupError, ArithmeticError) as error:
        raise ConfigError(f"routing policy {path!r} does not work: {type(error).__name__}: {error}") from error
    if answer not in ("first", "second"):
        raise ConfigError(f"routing policy {path!r} answered {answer!r}, which is the name of no candidate")
    return policy
