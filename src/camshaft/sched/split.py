"""Split: how a step's prompt tokens are divided among the prompts in work."""

from __future__ import annotations

from collections.abc import Sequence as Seq

OLDEST_SHARE = 8  # the oldest prompt is sure of one part in so many


def split(budget: int, todo: Seq[int], ranks: Seq[int]) -> list[int]:
    """Tokens for each prompt; `todo[i]` are left of prompt i, and prompts are in order of arrival.

    Best rank first, then the shortest rest: it leaves soonest and holds nobody up for long. The oldest prompt gets its share
    whatever else is there, so that a long one ends in bounded time. With equal parts everybody would end as late as the last.
    """
    given = [0] * len(todo)
    if not todo or budget <= 0:
        return given
    given[0] = min(todo[0], max(1, budget // OLDEST_SHARE))
    left = budget - given[0]
    for i in sorted(range(len(todo)), key=lambda i: (ranks[i], todo[i], i)):
        more = min(todo[i] - given[i], left)
        given[i] += more
        left -= more
    return given


def spare(given: list[int], worse: Seq[bool], cap: int) -> int:
    """Take back what prompts of a worse class than somebody who decodes got beyond `cap` together: batch is not to stretch their steps.

    From the last, so that the oldest of them keeps its part. Returns what they keep.
    """
    got = sum(n for n, is_worse in zip(given, worse, strict=True) if is_worse)
    over = max(0, got - cap)
    left = over
    for i in reversed(range(len(given))):
        if worse[i] and left:
            less = min(given[i], left)
            given[i] -= less
            left -= less
    return got - over
