"""Rotary frequencies: how far one position turns each pair of a head."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from camshaft.formats.spec import RopeSpec


def inv_freq(rope: RopeSpec) -> NDArray[np.float64]:
    """Radians a position, float64 [rope.dim / 2]: theta^(-2i/dim) (RoFormer, Su et al. 2021, section 3.4.2), scaled as the spec says."""
    freq = rope.theta ** (-np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    if rope.freq_factors:
        freq = freq / np.array(rope.freq_factors, np.float64)
    if rope.scaling == "linear":
        return freq / rope.factor
    return _llama3(rope, freq) if rope.scaling == "llama3" else freq


def _llama3(rope: RopeSpec, plain: NDArray[np.float64]) -> NDArray[np.float64]:
    """Llama 3.1: slow pairs are slowed by `factor`, quick ones stay; between them the share is linear in turns per original context."""
    turns = rope.original_max_position * plain / (2 * np.pi)
    share = np.clip((turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor), 0.0, 1.0)
    return (1.0 - share) * plain / rope.factor + share * plain
