"""The router's choices, its room and its books."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from camshaft.errors import CircuitOpen, Unavailable
from camshaft.gateway.breaker import BreakerConfig, Turn
from camshaft.gateway.outcome import Outcome, Verdict
from camshaft.gateway.policy import Job, RouteConfig, make_policy
from camshaft.gateway.prefix import chain
from camshaft.gateway.route import Lease, Router
from camshaft.types import Load, ReplicaInfo

INFO = ReplicaInfo("same", 8192, 32, 512, 131_072, 32)


def router_of(n: int = 3, info: ReplicaInfo = INFO, **settings: object) -> Router:
    config = RouteConfig(**settings)  # type: ignore[arg-type]
    router = Router(make_policy(config), config, BreakerConfig(), random.Random(1))
    for i in range(n):
        router.join(f"r{i}", info, 0.0)
    return router


def prompt(seed: int, n: int = 640) -> Job:
    dice = random.Random(seed)
    ids = [dice.randrange(50_000) for _ in range(n)]
    return Job(chain(ids, 64, ""), n, 20)


def placed(router: Router, job: Job, now: float) -> Lease:
    lease = router.place(job, now)
    assert lease is not None
    return lease


def in_flight(router: Router) -> list[tuple[int, float, int]]:
    return [(c.n_running, c.n_waiting, c.n_decode) for c in router.candidates(Job(), 0.0)]


def test_a_burst_within_one_report_interval_is_spread_evenly() -> None:
    """What scrapes every few seconds sends a whole burst to the one that was idle at the last scrape (gateway failures, row 25)."""
    for policy in ("prefix_cost", "least_tokens", "round_robin"):
        router = router_of(4, INFO, policy=policy, seqs=100, room_s=1000.0)
        for i in range(4):
            router.report(f"r{i}", Load(running=0, waiting=0, at=100.0), 100.0)
        leases = [router.place(prompt(i), 100.0 + i / 1000) for i in range(100)]
        spread = Counter(lease.replica for lease in leases if lease)
        assert max(spread.values()) - min(spread.values()) <= 1, (policy, spread)
        assert sum(spread.values()) == 100


def test_a_client_that_leaves_takes_its_numbers_with_it() -> None:
    """One count leaked per disconnect; after a day all traffic went to the one that had been restarted (gateway failures, row 1)."""
    router = router_of(2)

    def cut(lease: Lease, i: int) -> None:
        with lease:
            lease.started(0, i + 0.1)
            if i % 2:
                lease.produced(1, i + 0.2)
            raise ConnectionResetError

    for i in range(50):
        lease = placed(router, prompt(i), float(i))
        with pytest.raises(ConnectionResetError):
            cut(lease, i)
        lease.close(Outcome.SUCCESS, i + 0.5)
    assert in_flight(router) == [(0, 0, 0)] * 2


def test_a_report_changes_no_count_of_ours() -> None:
    """A health check that reset the counters while requests ran made the busiest one look idle (gateway failures, row 2)."""
    router = router_of(1)
    lease = router.place(prompt(1), 0.0)
    router.report("r0", Load(running=0, waiting=0, utilisation=0.0, at=0.0), 0.0)
    router.join("r0", INFO, 0.0)
    assert in_flight(router) == [(1, 640, 20)]
    assert lease is not None
    lease.close(Outcome.SUCCESS, 1.0)
    assert in_flight(router) == [(0, 0, 0)]


def test_a_replica_that_comes_back_empty_gets_a_ramp() -> None:
    """A restarted worker with an empty tree drew all traffic until it fell over (gateway failures, row 6)."""
    router = router_of(3, slow_start_s=10.0)
    for i in range(60):
        lease = placed(router, prompt(i), float(i))
        lease.produced(1, i + 0.5)
        lease.close(Outcome.SUCCESS, i + 0.6)
    router.leave("r1")
    router.join("r1", INFO, 100.0)
    burst = [router.place(prompt(1000 + i), 100.0) for i in range(30)]
    spread = Counter(lease.replica for lease in burst if lease)
    assert 0 < spread["r1"] <= 4, spread
    for lease in burst:
        if lease:
            lease.close(Outcome.SUCCESS, 101.0)
    burst = [router.place(prompt(2000 + i, 64), 120.0) for i in range(30)]
    assert Counter(lease.replica for lease in burst if lease)["r1"] in (9, 10, 11)


def test_what_was_known_of_a_replica_goes_with_it() -> None:
    router = router_of(2)
    first = placed(router, prompt(7), 0.0)
    first.close(Outcome.SUCCESS, 1.0)
    assert {c.name: c.n_fresh for c in router.candidates(prompt(7), 1.0)}[first.replica] == 0
    router.leave(first.replica)
    router.join(first.replica, INFO, 2.0)
    assert [c.n_fresh for c in router.candidates(prompt(7), 2.0)] == [640, 640]


def test_a_lease_on_a_replica_that_left_closes_quietly() -> None:
    router = router_of(1)
    old = router.place(prompt(1), 0.0)
    router.leave("r0")
    router.join("r0", INFO, 1.0)
    assert old is not None
    old.produced(3, 2.0)
    old.close(Outcome.FAULT, 2.0)
    assert in_flight(router) == [(0, 0, 0)]


def test_a_request_without_a_prompt_goes_to_the_least_loaded() -> None:
    """A body that the router could not read raised inside it, and the client hung (gateway failures, row 7)."""
    for policy in ("prefix_cost", "least_tokens", "round_robin"):
        router = router_of(2, policy=policy)
        busy = placed(router, prompt(1), 0.0)
        for job in (Job(), Job((), 0, 0), Job((), -5, -5), Job((1, 2, 3), 0, 0), Job((), 10**9, 10**9, -3)):
            lease = placed(router, job, 0.0)
            assert lease.replica != busy.replica
            lease.close(Outcome.NEUTRAL, 0.0)
            if policy == "round_robin":
                break


def test_a_prefix_is_worth_going_back_for_and_not_for_ever() -> None:
    router = router_of(3, room_s=100.0)
    first = placed(router, prompt(5, 4096), 0.0)
    first.produced(1, 1.0)
    first.close(Outcome.SUCCESS, 2.0)
    again = [router.place(prompt(5, 4096), 3.0 + i) for i in range(3)]
    assert {lease.replica for lease in again if lease} == {first.replica}
    for i in range(8):
        placed(router, prompt(100 + i, 4096), 10.0)
    spread = Counter(c.n_running for c in router.candidates(Job(), 10.0))
    assert max(spread) - min(spread) <= 2, "affinity held on to a replica with a queue"


def test_a_prefix_is_its_tenants_own() -> None:
    ids = list(range(640))
    assert not set(chain(ids, 64, "a")) & set(chain(ids, 64, "b"))


def test_a_replica_is_kept_just_full() -> None:
    router = router_of(1, ReplicaInfo("x", 4096, 4, 512, 0, 0), room_s=1e6, slow_start_s=0.0)
    taken = []
    while router.has_room(1, 0.0):
        taken.append(router.place(Job((), 10, 10, 1), 0.0))
    assert len(taken) == 4
    assert all(taken)
    assert router.place(Job((), 10, 10, 1), 0.0) is None
    realtime = []
    while router.has_room(0, 0.0):
        realtime.append(router.place(Job((), 10, 10, 0), 0.0))
    assert len(realtime) == 4, "a better class passes, and all together stay within twice its sequences"
    assert taken[0] is not None
    taken[0].close(Outcome.SUCCESS, 1.0)
    assert not router.has_room(1, 1.0)


def test_prompt_tokens_ahead_are_bounded() -> None:
    router = router_of(1, room_s=1.0, usual_per_s=1000.0)
    leases = [router.place(prompt(i), 0.0) for i in range(3)]
    assert [lease is not None for lease in leases] == [True, True, False]
    assert leases[0] is not None
    leases[0].produced(1, 0.6)
    assert router.has_room(0, 0.6)


def test_back_pressure_is_obeyed_and_another_is_asked() -> None:
    """A 429 from a replica counted as a fault, and its Retry-After was forgotten (gateway failures, row 5)."""
    router = router_of(2)
    for _ in range(20):
        lease = placed(router, Job((), 10, 1), 0.0)
        lease.close(Verdict(Outcome.NEUTRAL, elsewhere=True, rest_s=2.0 if lease.replica == "r0" else 0.0), 0.0)
    assert lease.replica == "r1"
    assert router.next_timer(0.0) == 2.0
    assert {placed(router, Job((), 10, 1), 2.0).replica for _ in range(2)} == {"r0", "r1"}


def test_the_one_that_failed_is_not_asked_again_while_there_is_another() -> None:
    router = router_of(2)
    assert router.place(Job(), 0.0, avoid=("r0",)).replica == "r1"  # type: ignore[union-attr]
    assert router.place(Job(), 0.0, avoid=("r0", "r1")) is not None
    router.hold("r1")
    assert router.place(Job(), 0.0, avoid=("r0",)).replica == "r0"  # type: ignore[union-attr]


def test_a_stream_moves_only_to_one_that_computes_alike() -> None:
    router = router_of(1)
    router.join("other", ReplicaInfo("different"), 0.0)
    assert {placed(router, Job(numerics_id="different"), 0.0).replica for _ in range(3)} == {"other"}
    assert router.place(Job(numerics_id="unheard of"), 0.0) is None
    assert router.numerics_ids() == {"same", "different"}


def test_a_slow_replica_gets_less() -> None:
    router = router_of(2, slow_start_s=0.0)
    pace = {"r0": 2000.0, "r1": 250.0}
    counts: Counter[str] = Counter()
    ends: list[tuple[float, int, object]] = []
    now = 0.0
    for i in range(400):
        now += 0.4
        for end in sorted(e for e in ends if e[0] <= now):
            end[2].produced(1, end[0])  # type: ignore[attr-defined]
            end[2].close(Outcome.SUCCESS, end[0])  # type: ignore[attr-defined]
        ends = [e for e in ends if e[0] > now]
        lease = router.place(prompt(i), now)
        if lease is not None:
            counts[lease.replica] += 1
            began = max([now, *(e[0] for e in ends if e[2].replica == lease.replica)])  # type: ignore[attr-defined]
            ends.append((began + 640 / pace[lease.replica], i, lease))
    assert counts["r0"] > 3 * counts["r1"] > 0, counts


def test_others_work_on_a_replica_counts() -> None:
    router = router_of(2)
    router.report("r0", Load(running=20, waiting=12, at=0.0), 0.0)
    assert [placed(router, Job((), 10, 1), 0.1).replica for _ in range(3)] == ["r1"] * 3
    assert router.candidates(Job(), 10.0)[0].n_running == 0, "a report that is old is not believed"


def test_what_was_ours_when_a_report_was_written_is_nobody_elses() -> None:
    """A report of a full second ago, read after a burst of short requests had ended, looked like somebody else's full replica."""
    router = router_of(1, seqs=1000)
    for second in range(1, 20):
        leases = [placed(router, Job((), 10, 1), second - 0.9) for _ in range(32)]
        load = Load(running=32, waiting=0, at=second - 0.5)
        for lease in leases:
            lease.close(Outcome.SUCCESS, second - 0.4)
        router.report("r0", load, float(second))
        router.report("r0", load, second + 0.05)
        assert router.candidates(Job(), float(second))[0].n_running == 0
        assert router.has_room(0, float(second))


def test_a_machine_that_others_keep_busy_counts_as_slower() -> None:
    router = router_of(2)
    router.report("r0", Load(running=0, waiting=0, utilisation=0.9, at=0.0), 0.0)
    shares = [c.share for c in router.candidates(Job(), 0.0)]
    assert shares[0] == pytest.approx(0.2)
    assert shares[1] == 1.0


def finish(router: Router, job: Job, now: float, at_start: int, at_end: int = 0) -> None:
    lease = placed(router, job, now)
    lease.started(at_start, now + 0.1)
    assert lease.produced(1, now + 0.2), "the first token makes room"
    assert not lease.produced(1, now + 0.3)
    lease.ended(at_end, now + 0.3)
    lease.close(Outcome.SUCCESS, now + 0.3)


def test_a_cache_that_does_not_hold_what_it_should_is_believed_less() -> None:
    router = router_of(1)
    finish(router, prompt(2), 0.0, 64)
    for i in range(40):
        finish(router, prompt(3), float(i), 0)
    assert router.candidates(prompt(3), 50.0)[0].n_fresh > 600


def test_a_server_that_cannot_tell_what_it_found_is_believed_all_the_same() -> None:
    """Servers that say 0 at the start, and perhaps the truth at the end, lost their affinity altogether."""
    router = router_of(1)
    for i in range(40):
        finish(router, prompt(3), float(i), 0)
    assert router.candidates(prompt(3), 50.0)[0].n_fresh == 0
    for i in range(40):
        finish(router, prompt(3), 50.0 + i, 0, 320)
    assert router.candidates(prompt(3), 100.0)[0].n_fresh == pytest.approx(320, abs=20)


def test_the_faults_of_a_death_open_no_breaker_of_one_that_is_gone() -> None:
    turns: list[Turn] = []
    config = RouteConfig()
    router = Router(make_policy(config), config, BreakerConfig(), random.Random(1), turns.append)
    router.join("r0", INFO, 0.0)
    leases = [placed(router, Job(), 0.0) for _ in range(10)]
    router.leave("r0")
    router.join("r0", INFO, 0.1)
    for lease in leases:
        lease.close(Outcome.FAULT, 0.2)
    assert not turns


def test_lost_leases_are_reaped_and_told() -> None:
    router = router_of(1, lease_s=100.0)
    lease = router.place(prompt(1), 0.0)
    assert router.reap(99.0) == []
    assert [(lost.replica, lost.age_s) for lost in router.reap(101.0)] == [("r0", 101.0)]
    assert in_flight(router) == [(0, 0, 0)]
    assert lease is not None
    lease.close(Outcome.SUCCESS, 102.0)
    assert in_flight(router) == [(0, 0, 0)]


def test_draining_takes_nothing_new_and_says_why() -> None:
    router = router_of(1)
    router.hold("r0")
    assert router.place(Job(), 0.0) is None
    assert isinstance(router.refusal(0.0), Unavailable)
    router.join("r0", INFO, 1.0)
    assert router.refusal(1.0) is None
    assert router.place(Job(), 1.0) is not None


def test_faults_open_a_replica_and_a_probe_closes_it() -> None:
    turns: list[Turn] = []
    config = RouteConfig(slow_start_s=0.0)
    router = Router(make_policy(config), config, BreakerConfig(jitter=0.0), random.Random(1), turns.append)
    for name in ("r0", "r1", "r2"):
        router.join(name, INFO, 0.0)
    while not turns:
        lease = placed(router, Job(), 0.0)
        lease.close(Outcome.FAULT if lease.replica == "r1" else Outcome.SUCCESS, 0.0)
    assert turns[-1].subject == "r1"
    assert turns[-1].after == "open"
    assert {placed(router, Job(), 1.0).replica for _ in range(9)} == {"r0", "r2"}
    for _ in range(2):
        probe = placed(router, Job(), 6.0)
        assert probe.replica == "r1"
        probe.close(Outcome.SUCCESS, 6.1)
    assert turns[-1].after == "closed"


def test_so_many_are_never_ejected_that_too_few_are_left() -> None:
    router = router_of(3, slow_start_s=0.0)
    for _ in range(200):
        lease = router.place(Job(), 0.0)
        assert lease is not None, "all rest, and nobody is asked"
        lease.close(Outcome.FAULT, 0.0)
    assert {placed(router, Job(), 0.1).replica for _ in range(9)} == {"r0", "r1", "r2"}


def test_a_version_that_fails_rests_as_a_whole() -> None:
    router = router_of(2)
    for _ in range(20):
        trial = router.version.ask(0.0)
        assert trial is not None
        trial.close(Outcome.FAULT, 0.0)
    refusal = router.refusal(0.0)
    assert isinstance(refusal, CircuitOpen)
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s > 1
    again = router_of(2)
    again.restore(router.snapshot(0.0), 1000.0)
    assert isinstance(again.refusal(1000.0), CircuitOpen), "a restart forgets no open circuit"
    assert again.refusal(1010.0) is None
