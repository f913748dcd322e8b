"""Block: one unit of the KV pool. BlockList: an intrusive list of blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from camshaft.kv.tree import Node


class Block:
    """`block_size` tokens of one KV group. Made once at start; moves between lists, never reallocated.

    refs counts the tables (and pending copies) that hold it. With refs 0 it is cached where `node` is set, else free.
    """

    __slots__ = ("group", "home", "id", "next", "node", "prev", "refs", "used_at", "uses")

    def __init__(self, id: int) -> None:
        self.id = id
        self.refs = 0
        self.group = 0
        self.node: Node | None = None
        self.used_at = 0.0  # Clock.now() when it was last let go
        self.uses = 0  # prefix hits since it was cached
        self.prev: Block = self
        self.next: Block = self
        self.home: BlockList | None = None

    def __repr__(self) -> str:
        return f"Block({self.id}, refs={self.refs}, cached={self.node is not None})"


class BlockList:
    """Doubly linked through the blocks themselves: every operation is O(1) and allocates nothing, removal from the middle included."""

    __slots__ = ("_end", "_n")

    def __init__(self) -> None:
        self._end = Block(-1)
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Block]:
        """First to be taken first. Do not change the list meanwhile."""
        block = self._end.next
        while block is not self._end:
            yield block
            block = block.next

    @property
    def head(self) -> Block | None:
        """The block that `pop` would give."""
        return self._end.next if self._n else None

    def push(self, block: Block) -> None:
        """Put at the end: the last to be taken."""
        last = self._end.prev
        block.prev, block.next, block.home = last, self._end, self
        last.next = block
        self._end.prev = block
        self._n += 1

    def remove(self, block: Block) -> None:
        block.prev.next = block.next
        block.next.prev = block.prev
        block.prev = block.next = block
        block.home = None
        self._n -= 1

    def pop(self) -> Block:
        """Take the first. The list must not be empty."""
        block = self._end.next
        self.remove(block)
        return block
