"""Evictors: which cached block goes first. Policies as objects; none of them can change an output, only what is computed again."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

from camshaft.kv.block import Block, BlockList
from camshaft.kv.worth import USUAL_PACE_S

MAX_LEVEL = 4  # turns or hits beyond which a prefix is not thought any better of
_REUSE = (1.0, 1.5, 2.0, 2.5, 3.0)  # expected reuse by level, relative to a prefix that was seen once
_PACES_S = (10.0, USUAL_PACE_S, 300.0)  # between the turns of a quick, a usual and a slow session
_OVER_AFTER = 4.0  # paces of silence after which a conversation is more likely over than not
_LONG_TOKENS = 4096  # prefixes from here on cost a quarter more per token: attention grows with position
_LONG_COST = 1.25
_HINT = 1.5  # what the wish to be kept is worth
HINT_SHARE = 0.5  # of all cached blocks; beyond it wishes count for nothing, or they would drive out what is really used


class Evictor(Protocol):
    """Holds the blocks that are cached and in nobody's table. O(1), or in the number of classes, which is fixed."""

    def __len__(self) -> int: ...

    def add(self, block: Block, now: float) -> None:
        """`block` has just been let go by its last table."""
        ...

    def remove(self, block: Block) -> None:
        """`block` was hit: it is in use again."""
        ...

    def pop(self, now: float) -> tuple[Block, str]:
        """The least valuable block and the name of its class. Must not be empty."""
        ...


class Lru:
    """Least recently used first. The baseline."""

    def __init__(self) -> None:
        self._blocks = BlockList()

    def __len__(self) -> int:
        return len(self._blocks)

    def add(self, block: Block, now: float) -> None:
        self._blocks.push(block)

    def remove(self, block: Block) -> None:
        self._blocks.remove(block)

    def pop(self, now: float) -> tuple[Block, str]:
        return self._blocks.pop(), "lru"


class Kind(NamedTuple):
    """A class of blocks that are worth the same at the same idle time."""

    level: int  # of _REUSE
    pace: int  # of _PACES_S
    is_long: bool
    hinted: bool

    def log_value(self, idle_s: float, *, hints_count: bool) -> float:
        """log(expected reuse x cost of computing again x decay). In logs, so that nothing old underflows to the same zero.

        Chances fall as 1 / (idle + pace) while a conversation may still go on, and exponentially once it most likely will not.
        """
        pace_s = _PACES_S[self.pace]
        worth = _REUSE[self.level] * (_LONG_COST if self.is_long else 1.0)
        if self.hinted and hints_count:
            worth *= _HINT
        return math.log(worth / (idle_s + pace_s)) - idle_s / (_OVER_AFTER * pace_s)

    @property
    def label(self) -> str:
        """For the counter of evictions: few names, whatever the number of classes."""
        return "hinted" if self.hinted else "once" if self.level == 0 else "reused"


class Retention:
    """Soft retention: the class whose oldest block is worth least gives it up.

    Within a class value falls with idle time alone, so its oldest is its least; across classes the values cross as they fall at different
    rates, which is what makes this another order than LRU. Nothing is pinned: every value goes to zero.
    """

    def __init__(self) -> None:
        self._kinds: dict[Kind, BlockList] = {}
        self._n = 0
        self._n_hinted = 0

    def __len__(self) -> int:
        return self._n

    def add(self, block: Block, now: float) -> None:
        block.used_at = now
        kind = kind_of(block)
        blocks = self._kinds.get(kind)
        if blocks is None:
            blocks = self._kinds[kind] = BlockList()
        blocks.push(block)
        self._n += 1
        self._n_hinted += kind.hinted

    def remove(self, block: Block) -> None:
        assert block.home is not None
        block.home.remove(block)
        self._n -= 1
        self._n_hinted -= block.worth.hinted

    def pop(self, now: float) -> tuple[Block, str]:
        hints_count = self._n_hinted <= HINT_SHARE * self._n
        least: tuple[float, Block, Kind] | None = None
        for kind, blocks in self._kinds.items():
            head = blocks.head
            if head is not None:
                value = kind.log_value(now - head.used_at, hints_count=hints_count)
                if least is None or value < least[0]:
                    least = (value, head, kind)
        assert least is not None
        _, block, kind = least
        self.remove(block)
        return block, kind.label


def kind_of(block: Block) -> Kind:
    """The class of a block, from what its last table was worth and from its own hits."""
    worth = block.worth
    level = min(MAX_LEVEL, max(worth.turns - 1, block.uses))
    pace = sum(worth.pace_s > 2.5 * p for p in _PACES_S[:-1])
    return Kind(level, pace, worth.n_tokens >= _LONG_TOKENS, worth.hinted)


def make_evictor(name: str) -> Evictor:
    """The policy of that name (EngineConfig.evict)."""
    return Retention() if name == "retention" else Lru()
