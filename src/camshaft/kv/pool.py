"""Pool: every block is free, cached or in use, and the three always add up."""

from __future__ import annotations

from collections.abc import Callable

from camshaft.kv.block import Block, BlockList
from camshaft.kv.evict import Evictor
from camshaft.kv.worth import PLAIN


class Pool:
    """Hands out blocks of one size. Block 0 is never handed out: in a table, 0 means "nothing there".

    Not thread-safe: the engine thread is the only one that touches it.
    """

    def __init__(self, n_blocks: int, evictor: Evictor) -> None:
        self.blocks = [Block(i, PLAIN) for i in range(n_blocks)]
        self.evictor = evictor
        self.evicted: dict[str, int] = {}  # blocks evicted so far, by the evictor's classes
        self._free = BlockList()
        for block in self.blocks[1:]:
            self._free.push(block)

    @property
    def n_usable(self) -> int:
        return len(self.blocks) - 1

    @property
    def n_free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Blocks that hold a prefix and are in nobody's table."""
        return len(self.evictor)

    @property
    def n_available(self) -> int:
        return len(self._free) + len(self.evictor)

    @property
    def n_in_use(self) -> int:
        return self.n_usable - self.n_available

    def take(self, group: int, now: float, forget: Callable[[Block], None]) -> Block:
        """A block for the caller, refs 1: a free one, else the least valuable cached one, after `forget` has struck it from the tree.

        There must be one available.
        """
        if self._free:
            block = self._free.pop()
        else:
            block, kind = self.evictor.pop(now)
            self.evicted[kind] = self.evicted.get(kind, 0) + 1
            forget(block)
        block.refs = 1
        block.group = group
        return block

    def hold(self, block: Block) -> None:
        """One more holder; a cached block is in use again."""
        if block.refs == 0:
            self.evictor.remove(block)
        block.refs += 1

    def drop(self, block: Block, now: float) -> None:
        """One holder less; the last one gives it back to the cache or to the free list."""
        if block.refs <= 0:
            raise AssertionError(f"block {block.id} let go by nobody who held it")
        block.refs -= 1
        if block.refs:
            return
        if block.node is not None:
            self.evictor.add(block, now)
        else:
            self._free.push(block)
