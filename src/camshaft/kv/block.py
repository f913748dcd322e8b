"""Block and Node: a unit of the KV pool, and the prefix that it holds. They point at each other. BlockList: an intrusive list of blocks."""

from __future__ import annotations

from collections.abc import Iterator

from camshaft.kv.worth import Worth


class Link:
    """A place in a ring. A list's own end is one; a block is another."""

    __slots__ = ("next", "prev")

    def __init__(self) -> None:
        self.prev: Link = self
        self.next: Link = self


class Block(Link):
    """`block_size` tokens of one KV group. Made once at start; moves between lists, never reallocated.

    refs counts the tables (and pending copies) that hold it. With refs 0 it is cached where `node` is set, else free.
    """

    __slots__ = ("group", "home", "id", "node", "refs", "used_at", "uses", "worth")

    def __init__(self, id: int, worth: Worth) -> None:
        super().__init__()
        self.id = id
        self.refs = 0
        self.group = 0
        self.node: Node | None = None
        self.used_at = 0.0  # Clock.now() when it was last let go
        self.uses = 0  # prefix hits since it was cached
        self.worth = worth  # of the last table that held it
        self.home: BlockList | None = None

    def __repr__(self) -> str:
        return f"Block({self.id}, refs={self.refs}, cached={self.node is not None})"


class BlockList:
    """Doubly linked through the blocks themselves: every operation is O(1) and allocates nothing, removal from the middle included."""

    __slots__ = ("_end", "_n")

    def __init__(self) -> None:
        self._end = Link()
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Block]:
        """First to be taken first. Do not change the list meanwhile."""
        link = self._end.next
        while isinstance(link, Block):
            yield link
            link = link.next

    @property
    def head(self) -> Block | None:
        """The block that `pop` would give."""
        head = self._end.next
        return head if isinstance(head, Block) else None

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
        block = self.head
        assert block is not None
        self.remove(block)
        return block


class Node:
    """One full block of tokens after one prefix. `blocks[g]` holds its KV for group g where that is cached or in use."""

    __slots__ = ("blocks", "children", "depth", "ids", "parent", "pins")

    def __init__(self, parent: Node | None, ids: tuple[int, ...], n_groups: int) -> None:
        self.parent = parent
        self.ids = ids
        self.depth: int = 0 if parent is None else parent.depth + 1  # blocks from the root; the root has 0
        self.children: dict[tuple[int, ...], Node] = {}
        self.blocks: list[Block | None] = [None] * n_groups
        self.pins = 0  # tables whose chain ends here

    @property
    def is_idle(self) -> bool:
        """Whether nothing needs this node any more."""
        return not self.children and not self.pins and all(b is None for b in self.blocks)
