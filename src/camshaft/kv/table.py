"""Table: which blocks hold one sequence's KV."""

from __future__ import annotations

from camshaft.kv.block import Block, Node
from camshaft.kv.worth import PLAIN
from camshaft.types import TablePatch


class Table:
    """Per group, block i holds tokens [i * block_size, (i + 1) * block_size). None: passed by the window, or never needed.

    Owned by one running sequence and kept by the manager; empty while the sequence waits.
    """

    __slots__ = ("blocks", "copies", "first", "n_sealed", "patches", "sources", "tip", "worth")

    def __init__(self, tip: Node, n_groups: int) -> None:
        self.blocks: list[list[Block | None]] = [[] for _ in range(n_groups)]
        self.first = [0] * n_groups  # blocks before it are None
        self.tip = tip  # the tree's node of the last sealed block; pinned
        self.n_sealed = 0  # full blocks that the tree knows
        self.worth = PLAIN  # of these blocks once they are cached
        self.patches: list[TablePatch] = []  # what the runner has not heard yet
        self.copies: list[tuple[Block, Block]] = []  # (src, dst) that the runner has not made yet
        self.sources: list[Block] = []  # held until the copies from them are made

    def held(self) -> list[Block]:
        """Every hold on a block that this table has, one entry each."""
        live = [b for group in self.blocks for b in group if b is not None]
        return live + self.sources
