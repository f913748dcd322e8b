"""How long a replica rests after a crash, and when it is given up."""

from __future__ import annotations

import pytest

from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.crashes import WINDOW_S, Crashes
from camshaft.cluster.silence import Silence

CONFIG = ReplicaConfig(backoff_first_s=1.0, backoff_most_s=5.0, steady_s=10.0, crash_row=6, crash_most=20)


def waits(crashes: Crashes, ready_s: float, n: int, gap_s: float) -> list[float | None]:
    return [crashes.crashed(ready_s, i * gap_s) for i in range(n)]


def test_the_wait_doubles_up_to_a_bound_and_then_it_is_given_up() -> None:
    assert waits(Crashes(CONFIG, lambda: 1.0), 0.0, 6, 10.0) == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_what_somebody_else_runs_is_looked_for_as_long_as_it_takes() -> None:
    """And found within fifteen seconds of coming back, with the time for a look."""
    found = waits(Crashes(ReplicaConfig(crash_row=3, crash_most=5), lambda: 1.0, patient=True), 0.0, 50, 5.0)
    assert found == [0.5, 1.0, 2.0, 4.0, 8.0] + [10.0] * 45


def test_jitter_only_ever_shortens_it_by_half_at_most() -> None:
    assert waits(Crashes(CONFIG, lambda: 0.0), 0.0, 3, 10.0) == [0.5, 1.0, 2.0]


def test_one_that_was_ready_for_a_while_begins_anew() -> None:
    crashes = Crashes(CONFIG, lambda: 1.0)
    waits(crashes, 0.0, 4, 10.0)
    assert crashes.crashed(10.0, 50.0) == 1.0
    assert crashes.crashed(9.9, 60.0) == 2.0


def test_one_that_crashes_again_and_again_is_given_up_though_it_serves_in_between() -> None:
    found = waits(Crashes(CONFIG, lambda: 1.0), 20.0, 20, WINDOW_S / 20)
    assert found == [1.0] * 19 + [None]
    assert None not in waits(Crashes(CONFIG, lambda: 1.0), 20.0, 200, WINDOW_S / 18)


def test_once_somebody_has_seen_to_it_the_past_is_forgotten() -> None:
    crashes = Crashes(CONFIG, lambda: 1.0)
    waits(crashes, 0.0, 6, 1.0)
    crashes.forget()
    assert crashes.crashed(0.0, 10.0) == 1.0


def test_silence_is_counted_as_it_could_be_heard() -> None:
    silence = Silence(1.0, 5.0, 0.0)
    assert [silence.tick(float(now)) for now in (1, 2, 3, 4)] == [False] * 4
    assert silence.tick(5.0)
    silence.heard()
    assert not silence.tick(6.0)


@pytest.mark.parametrize("pause_s", [60.0, 3600.0])
def test_a_pause_of_our_own_is_not_their_silence(pause_s: float) -> None:
    silence = Silence(1.0, 5.0, 0.0)
    silence.tick(1.0)
    silence.heard()
    assert not silence.tick(1.0 + pause_s)
    assert silence.silent_s == 2.0
