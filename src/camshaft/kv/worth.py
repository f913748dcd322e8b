"""Worth: what is known of a prefix's future."""

from __future__ import annotations

from typing import NamedTuple

USUAL_PACE_S = 60.0  # between two turns of a conversation of which nothing is known


class Worth(NamedTuple):
    """What a table's blocks are worth to whoever comes next; the same for all of its blocks but for their own hits."""

    turns: int = 1  # of the conversation so far
    pace_s: float = USUAL_PACE_S  # between its turns
    n_tokens: int = 0  # of the whole prefix
    hinted: bool = False  # somebody asked to keep it


PLAIN = Worth()
