"""Several engines on one machine share it."""

from __future__ import annotations

from camshaft._native import usable_cores
from camshaft.config import EngineConfig
from camshaft.gateway.launch import shared


def test_one_engine_has_the_machine_to_itself() -> None:
    config = EngineConfig(threads=0, age_s=60.0)
    assert shared(config, 1) == config


def test_ageing_is_left_to_the_line() -> None:
    assert shared(EngineConfig(age_s=10.0), 1).age_s == 60.0
    assert shared(EngineConfig(age_s=600.0), 1).age_s == 600.0


def test_several_divide_the_cores_and_hold_on_to_none() -> None:
    assert shared(EngineConfig(), 2).threads == max(1, usable_cores() // 2)
    assert shared(EngineConfig(), 1000).threads == 1
    given = shared(EngineConfig(threads=3), 2)
    assert given.threads == 3
    assert not given.pin_threads
