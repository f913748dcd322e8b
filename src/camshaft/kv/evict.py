"""Evictors: which cached block goes first. Policies as objects; none of them can change an output, only what is computed again."""

from __future__ import annotations

from typing import Protocol

from camshaft.kv.block import Block, BlockList


class Evictor(Protocol):
    """Holds the blocks that are cached and in nobody's table. All operations are O(1)."""

    def __len__(self) -> int: ...

    def add(self, block: Block, now: float) -> None:
        """`block` has just been let go by its last table."""
        ...

    def remove(self, block: Block, now: float) -> None:
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
        block.used_at = now
        self._blocks.push(block)

    def remove(self, block: Block, now: float) -> None:
        self._blocks.remove(block)

    def pop(self, now: float) -> tuple[Block, str]:
        return self._blocks.pop(), "lru"


def make_evictor(name: str) -> Evictor:
    """The policy of that name (EngineConfig.evict)."""
    return Lru()
