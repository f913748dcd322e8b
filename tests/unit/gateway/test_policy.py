"""Policies by name, and one of somebody's own by its path."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from camshaft.errors import ConfigError
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.policy import Candidate, Job, RouteConfig, make_policy
from camshaft.gateway.route import Router
from camshaft.types import ReplicaInfo

PAGE = Path(__file__).parents[3] / "docs" / "routing.md"
IDLE = Candidate("idle", 0, 0.0, 0, 1000.0, 0.0, 1000.0, 0.0, 1.0, 1)


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("policy_of_a_test")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_the_pages_example_works(module: ModuleType) -> None:
    source = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    policy = make_policy(RouteConfig(policy="policy_of_a_test:Coolest"))
    assert policy.choose(Job((), 10), [IDLE._replace(name="busy", n_running=3), IDLE]) == "idle"
    assert policy.choose(Job((), 5000), [IDLE._replace(name="far", n_waiting=900.0), IDLE]) == "idle"


def test_one_that_cannot_work_is_refused_at_start(module: ModuleType) -> None:
    class Raises:
        def choose(self, job: Job, candidates: list[Candidate]) -> str:
            raise ZeroDivisionError

    class Invents:
        def choose(self, job: Job, candidates: list[Candidate]) -> str:
            return "nobody"

    module.__dict__.update(Raises=Raises, Invents=Invents, Silent=object)
    for name in ("Raises", "Invents", "Silent", "Absent"):
        with pytest.raises(ConfigError, match="policy_of_a_test"):
            make_policy(RouteConfig(policy=f"policy_of_a_test:{name}"))
    with pytest.raises(ConfigError, match="did you mean 'prefix_cost'"):
        make_policy(RouteConfig(policy="prefix_cots"))


def test_an_answer_that_names_nobody_goes_to_the_least_loaded() -> None:
    class Stale:
        def choose(self, job: Job, candidates: object) -> str:
            return "gone"

    router = Router(Stale(), RouteConfig(), BreakerConfig(), random.Random(0))
    for name in ("r0", "r1"):
        router.join(name, ReplicaInfo(), 0.0)
    leases = [router.place(Job((), 10, 1), 0.0) for _ in range(4)]
    assert [lease.replica for lease in leases if lease] == ["r0", "r1", "r0", "r1"]


def test_a_prefix_outweighs_a_short_queue_and_not_a_long_one() -> None:
    policy = make_policy(RouteConfig())
    job = Job((), 1000, 10)
    for n_waiting, chosen in ((2000.0, "holder"), (4000.0, "idle")):
        assert policy.choose(job, [IDLE._replace(name="holder", n_fresh=0.0, n_waiting=n_waiting), IDLE]) == chosen


def test_speed_and_share_divide_the_cost() -> None:
    for name in ("prefix_cost", "least_tokens"):
        policy = make_policy(RouteConfig(policy=name))
        job = Job((), 1000, 10)
        assert policy.choose(job, [IDLE._replace(name="slow", prefill_per_s=500.0, turn=0), IDLE]) == "idle"
        assert policy.choose(job, [IDLE._replace(name="fresh", share=0.1, turn=0), IDLE]) == "idle"
        assert policy.choose(job, [IDLE._replace(name="even", turn=0), IDLE]) == "even"
