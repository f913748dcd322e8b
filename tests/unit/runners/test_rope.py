"""Rotary frequencies against a second definition, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

import graph_numpy
from camshaft.formats.spec import RopeSpec
from camshaft.runners.rope import inv_freq

SPECS = {
    "plain": RopeSpec(10_000.0, 64),
    "partial": RopeSpec(10_000.0, 20),
    "linear": RopeSpec(1e6, 64, scaling="linear", factor=8.0),
    "llama3": RopeSpec(500_000.0, 128, scaling="llama3", factor=32.0, original_max_position=8192),
    "factors": RopeSpec(500_000.0, 8, freq_factors=(1.0, 1.5, 4.0, 32.0)),
}


@pytest.mark.parametrize("name", SPECS)
def test_frequencies_are_those_of_the_definition(name: str) -> None:
    spec = SPECS[name]
    np.testing.assert_allclose(inv_freq(spec), graph_numpy.inv_freq(spec), rtol=1e-12)
    assert inv_freq(spec).dtype == np.float64
    assert inv_freq(spec).shape == (spec.dim // 2,)


def test_the_first_pair_turns_by_one_radian_a_position() -> None:
    assert inv_freq(SPECS["plain"])[0] == 1.0
    assert inv_freq(SPECS["linear"])[0] == 1.0 / 8.0


def test_llama3_leaves_quick_pairs_and_slows_slow_ones_by_the_factor() -> None:
    spec = SPECS["llama3"]
    ratio = inv_freq(RopeSpec(spec.theta, spec.dim)) / inv_freq(spec)
    assert ratio[0] == 1.0
    np.testing.assert_allclose(ratio[-1], 32.0)
    assert np.all(np.diff(ratio) >= -1e-9)
    assert np.any((ratio > 1.01) & (ratio < 31.0))
