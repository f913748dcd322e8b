"""What an operator is told about a name that nothing has."""

from __future__ import annotations

import pytest

from camshaft.gateway.control import MAX_SHOWN, unknown

REPLICAS = ("small/v1-1", "small/v1-2", "small/v2-1", "base/v1-1")


@pytest.mark.parametrize(
    ("name", "known", "says"),
    [
        ("v2-1", REPLICAS, "there is no replica 'v2-1'; did you mean 'small/v2-1'?"),
        ("v1-1", REPLICAS, "there is no replica 'v1-1'; did you mean 'small/v1-1', 'base/v1-1'?"),
        ("small", ("small/v1", "small/v2"), "there is no replica 'small'; did you mean 'small/v1', 'small/v2'?"),
        ("small/v1-3", REPLICAS[2:], "there is no replica 'small/v1-3'; did you mean 'small/v2-1'?"),
        ("zzz", ("v1", "v2"), "there is no replica 'zzz'; there are 'v1', 'v2'"),
        ("zzz", ("v1",), "there is no replica 'zzz'; there is 'v1'"),
        ("zzz", (), "there is no replica 'zzz'"),
    ],
)
def test_a_name_that_nothing_has_is_answered_with_those_that_something_has(name: str, known: tuple[str, ...], says: str) -> None:
    assert unknown("replica", name, known, "replica").message == says


def test_a_fleet_of_many_names_is_not_told_whole() -> None:
    said = unknown("model", "zzz", [f"m{i}" for i in range(100)], "model").message
    assert said.count("'m") == MAX_SHOWN
    assert said.endswith(", ...")
