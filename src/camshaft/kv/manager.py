"""KVManager: gives sequences their blocks, finds prefixes that are there already, takes back what a window has passed.

Lengths on the way of one sequence, in tokens:
    [0, n_computed) in blocks and final    [n_computed, n_known) to compute    [n_known, n_reserved) blocks there, nothing in them
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from camshaft.kv.block import Block, Node
from camshaft.kv.evict import Evictor
from camshaft.kv.pool import Pool
from camshaft.kv.sessions import Sessions
from camshaft.kv.table import Table
from camshaft.kv.tree import Tree
from camshaft.kv.worth import PLAIN, Worth
from camshaft.types import BlockCopy, Capacity, TablePatch


class Claim(NamedTuple):
    """What a sequence asks for at admission."""

    ids: Sequence[int]  # all known tokens
    n_reserve: int  # tokens that must have room at once
    tenant: str = ""
    salt: str = ""
    reuse: bool = True  # False: read nothing from the cache (prompt log-probabilities need every position computed)
    session: str = ""  # a conversation that wishes to be kept
    margin: int = 0  # blocks that must stay available beside this sequence; 0 lets it take the last one


class Grant(NamedTuple):
    table: Table
    n_computed: int  # tokens whose KV is there already, at most len(ids) - 1: the last one's logits are needed


class Front(NamedTuple):
    """A block to come, as the tree will key it. Two sequences with equal fronts are about to compute the same block."""

    node: int
    ids: tuple[int, ...]


class _Hit(NamedTuple):
    nodes: list[Node]  # whole blocks to share
    tail: list[Block | None] | None  # per group, a block to copy: it holds the rest of the known tokens
    n_computed: int


_MISS = _Hit([], None, 0)


class KVManager:
    """All groups draw blocks of equal bytes from one pool. Engine thread only."""

    def __init__(self, capacity: Capacity, evictor: Evictor, *, prefix_caching: bool = True) -> None:
        self.block_size = capacity.block_size
        self.windows = [g.window for g in capacity.groups]
        self.pool = Pool(capacity.n_blocks, evictor)
        self.tree = Tree(capacity.block_size, len(capacity.groups))
        self.prefix_caching = prefix_caching
        self.n_queried = 0  # tokens looked up
        self.n_hit = 0  # tokens found
        # A window needs its own tokens and those of the chunk in flight; two blocks more for the ragged ends.
        self._window_caps = [None if w is None else (w - 1 + capacity.max_tokens) // self.block_size + 2 for w in self.windows]
        self._sessions = Sessions(PLAIN.pace_s)
        self._has_windows = any(w is not None for w in self.windows)

    # ------------------------------------------------------------------------------------------------------------ sizes

    def blocks_for(self, n_tokens: int) -> int:
        """Blocks that a sequence of `n_tokens` holds at most, over all groups."""
        n = -(-n_tokens // self.block_size)
        return sum(n if cap is None else min(n, cap) for cap in self._window_caps)

    def max_tokens_alone(self) -> int:
        """The longest sequence that fits when it has the pool to itself."""
        lo, hi = 0, self.pool.n_usable * self.block_size
        while lo < hi:
            mid = (lo + hi + 1) // 2
            lo, hi = (mid, hi) if self.blocks_for(mid) <= self.pool.n_usable else (lo, mid - 1)
        if lo == self.pool.n_usable * self.block_size and all(cap is not None for cap in self._window_caps):
            return 1 << 60  # windows only: length costs nothing
        return lo

    # -------------------------------------------------------------------------------------------------------- admission

    def admit(self, claim: Claim, now: float, twin: Table | None = None) -> Grant | None:
        """Blocks for a sequence, shared as far as its prefix is cached; None, and nothing changed, where they do not fit.

        `twin` is the table of a sequence with the same prompt that has computed all of it: its partial last block is copied.
        """
        root = self.tree.pin_root(claim.tenant, claim.salt)
        hit = self._match(root, claim.ids, twin) if claim.reuse and self.prefix_caching else _MISS
        if self._n_short(claim, hit) and claim.margin == 0:
            # A copy needs its source and its target at once, which an otherwise empty pool of just the right size cannot give.
            hit = _MISS
        if self._n_short(claim, hit):
            self.tree.unpin(root)
            return None
        if claim.reuse:
            self.n_queried += len(claim.ids)
            self.n_hit += hit.n_computed
        worth = self._worth(claim, hit, now)
        table = self._build(root, claim, hit, now)
        table.worth = worth
        return Grant(table, hit.n_computed)

    def _worth(self, claim: Claim, hit: _Hit, now: float) -> Worth:
        n_tokens = len(claim.ids)
        if claim.session:
            turns, pace_s = self._sessions.visit(claim.tenant, claim.session, now)
            return Worth(turns, pace_s, n_tokens, hinted=True)
        # Without a name a conversation shows in the tree: it goes on where a chain ended, while a shared beginning has many branches.
        last = hit.nodes[-1] if hit.nodes else None
        if last is None or len(last.children) > 2:
            return Worth(n_tokens=n_tokens)
        turns = max((b.worth.turns for b in last.blocks if b is not None), default=0) + 1
        return Worth(turns, n_tokens=n_tokens)

    def n_short(self, claim: Claim) -> int:
        """How many blocks too few there are to admit this; 0 where it fits."""
        root = self.tree.pin_root(claim.tenant, claim.salt)
        hit = self._match(root, claim.ids, None) if claim.reuse and self.prefix_caching else _MISS
        short = self._n_short(claim, hit)
        self.tree.unpin(root)
        return short

    def front(self, claim: Claim) -> Front | None:
        """The first whole block of the known tokens that is not cached; None where all are."""
        root = self.tree.pin_root(claim.tenant, claim.salt)
        node: Node = root
        for found in self.tree.walk(root, claim.ids):
            if any(w is None and block is None for w, block in zip(self.windows, found.blocks, strict=True)):
                break
            node = found
        self.tree.unpin(root)
        return self._front_after(node, claim.ids)

    def front_of(self, table: Table, ids: Sequence[int]) -> Front | None:
        """The whole block that this running sequence will make shareable next; None where its known tokens fill no more."""
        return self._front_after(table.tip, ids)

    def _front_after(self, node: Node, ids: Sequence[int]) -> Front | None:
        start = node.depth * self.block_size
        key = tuple(ids[start : start + self.block_size])
        return Front(id(node), key) if len(key) == self.block_size else None

    def _match(self, root: Node, ids: Sequence[int], twin: Table | None) -> _Hit:
        """The longest prefix from which every group can go on: all blocks of a full group, the window's own of a windowed one."""
        n_known = len(ids)
        nodes: list[Node] = []
        runs = [0] * len(self.windows)  # blocks in a row, per group, that end at this node
        n_best = 0
        for node in self.tree.walk(root, ids):
            nodes.append(node)
            n = len(nodes)
            for g, block in enumerate(node.blocks):
                runs[g] = runs[g] + 1 if block is not None else 0
            if any(w is None and run < n for w, run in zip(self.windows, runs, strict=True)):
                break
            # Keep the last token out of the match: its logits are needed even on a full hit.
            start = min(n * self.block_size, n_known - 1)
            if all(run >= n - self._first_block(g, start) for g, run in enumerate(runs)):
                n_best = n
        del nodes[n_best:]
        if n_best and n_best * self.block_size == n_known:
            last = nodes.pop()
            return _Hit(nodes, last.blocks, n_known - 1)
        if twin is not None and n_best == n_known // self.block_size:
            tail = [row[n_best] if n_best < len(row) else None for row in twin.blocks]
            if all(block is not None for block in tail):
                return _Hit(nodes, tail, n_known - 1)
        return _Hit(nodes, None, n_best * self.block_size)

    def _first_block(self, group: int, start: int) -> int:
        """Index of the first block that a token at position `start` sees."""
        window = self.windows[group]
        return 0 if window is None else max(0, start - window + 1) // self.block_size

    def _shared(self, hit: _Hit, group: int) -> list[Block]:
        first = self._first_block(group, hit.n_computed)
        blocks = [node.blocks[group] for node in hit.nodes[first:]]
        return [b for b in blocks if b is not None]

    def _n_short(self, claim: Claim, hit: _Hit) -> int:
        n_new = n_revived = 0
        target = -(-claim.n_reserve // self.block_size)
        for g, cap in enumerate(self._window_caps):
            shared = self._shared(hit, g)
            first = self._first_block(g, hit.n_computed)
            wanted = target if cap is None else min(target - first, cap)
            n_new += max(0, wanted - len(shared))
            n_revived += sum(1 for b in shared if b.refs == 0)
        if hit.tail is not None:
            n_revived += sum(1 for b in hit.tail if b is not None and b.refs == 0)
        return max(0, n_new + claim.margin - (self.pool.n_available - n_revived))

    def _build(self, root: Node, claim: Claim, hit: _Hit, now: float) -> Table:
        table = Table(root, len(self.windows))
        if hit.nodes:
            table.tip = self.tree.move_pin(root, hit.nodes[-1])
            table.n_sealed = len(hit.nodes)
        tails = hit.tail or []
        # Everything shared is held before anything new is taken: taking may evict.
        for g, row in enumerate(table.blocks):
            first = table.first[g] = min(self._first_block(g, hit.n_computed), len(hit.nodes))
            row.extend([None] * first)
            for block in self._shared(hit, g):
                self.pool.hold(block)
                block.uses += 1
                row.append(block)
        for src in tails:
            assert src is not None
            self.pool.hold(src)
            src.uses += 1
            table.sources.append(src)
        for g, src in enumerate(table.sources):
            dst = self._take(g, now)
            table.blocks[g].append(dst)
            table.copies.append((src, dst))
        target = -(-claim.n_reserve // self.block_size)
        for g, cap in enumerate(self._window_caps):
            row = table.blocks[g]
            # A windowed group gets its blocks chunk by chunk: most of the prompt's would pass behind the window again.
            while cap is None and len(row) < target:
                row.append(self._take(g, now))
            first = table.first[g]
            if len(row) > first:
                table.patches.append(TablePatch(g, first, tuple(b.id for b in row[first:] if b is not None)))
        return table

    # ------------------------------------------------------------------------------------------------------------- life

    def reserve(self, table: Table, n_tokens: int, now: float) -> bool:
        """Room for the first `n_tokens` of a sequence; False, and nothing changed, where there are not enough blocks."""
        n = -(-n_tokens // self.block_size)
        n_missing = 0
        for row in table.blocks:
            if len(row) < n:
                n_missing += n - len(row)
        if not n_missing:
            return True
        if n_missing > self.pool.n_available:
            return False
        for g, row in enumerate(table.blocks):
            start = len(row)
            while len(row) < n:
                row.append(self._take(g, now))
            if len(row) > start:
                table.patches.append(TablePatch(g, start, tuple(b.id for b in row[start:] if b is not None)))
        return True

    def take_patches(self, table: Table) -> tuple[TablePatch, ...]:
        """What the runner must know before it computes this sequence's next row; told once."""
        if not table.patches:
            return ()
        patches = tuple(table.patches)
        table.patches.clear()
        return patches

    def take_copies(self, table: Table) -> list[BlockCopy]:
        """Copies that the runner must make before it computes this sequence's next row; told once."""
        copies = [BlockCopy(src.id, dst.id) for src, dst in table.copies]
        table.copies.clear()
        return copies

    def has_news(self, table: Table, n_computed: int) -> bool:
        """Whether `commit` has anything to do for a sequence that has computed one more token."""
        return n_computed % self.block_size == 0 or self._has_windows or bool(table.sources)

    def commit(self, table: Table, ids: Sequence[int], n_computed: int, now: float) -> None:
        """The first `n_computed` tokens are computed: full blocks become shareable, and what the window has passed goes back."""
        if table.sources and not table.copies:
            for block in table.sources:
                self.pool.drop(block, now)
            table.sources.clear()
        size = self.block_size
        if self.prefix_caching:
            while (table.n_sealed + 1) * size <= n_computed:
                self._seal(table, tuple(ids[table.n_sealed * size : (table.n_sealed + 1) * size]))
        if self._has_windows:
            self._pass_windows(table, n_computed, now)

    def release(self, table: Table, now: float) -> None:
        """Give everything back, tail first, so that the head of a prefix outlives its tail."""
        for row in table.blocks:
            for block in reversed(row):
                if block is not None:
                    block.worth = table.worth
                    self.pool.drop(block, now)
            row.clear()
        for block in table.sources:
            self.pool.drop(block, now)
        table.sources.clear()
        table.copies.clear()
        self.tree.unpin(table.tip)

    def _take(self, group: int, now: float) -> Block:
        return self.pool.take(group, now, self.tree.forget)

    def _seal(self, table: Table, ids: tuple[int, ...]) -> None:
        node = self.tree.child(table.tip, ids)
        for g, row in enumerate(table.blocks):
            block = row[table.n_sealed]
            # Where two sequences computed the same block at once, the tree keeps the first; the other stays private.
            if block is not None and block.node is None and node.blocks[g] is None:
                node.blocks[g] = block
                block.node = node
        table.tip = self.tree.move_pin(table.tip, node)
        table.n_sealed += 1

    def _pass_windows(self, table: Table, n_computed: int, now: float) -> None:
        for g, row in enumerate(table.blocks):
            keep = min(self._first_block(g, n_computed), len(row))
            first = table.first[g]
            if keep <= first:
                continue
            for i in range(first, keep):
                block = row[i]
                assert block is not None
                self.pool.drop(block, now)
                row[i] = None
            table.patches.append(TablePatch(g, first, (0,) * (keep - first)))
            table.first[g] = keep

    # ------------------------------------------------------------------------------------------------------------ books

    def n_wasted(self, tables: Iterable[tuple[Table, int]]) -> int:
        """Token slots that are allocated and hold nothing, over (table, n_computed) of the running sequences and all groups."""
        size = self.block_size
        return sum(max(0, len(row) * size - n_computed) for table, n_computed in tables for row in table.blocks)

    def check(self, tables: Iterable[Table]) -> None:
        """Prove the books against the tables of all running sequences. Raises AssertionError."""
        refs = [0] * len(self.pool.blocks)
        pins: dict[int, int] = {}
        for table in tables:
            pins[id(table.tip)] = pins.get(id(table.tip), 0) + 1
            for block in table.held():
                refs[block.id] += 1
        n_free = n_cached = n_in_use = 0
        for block in self.pool.blocks[1:]:
            assert block.refs == refs[block.id], f"block {block.id} has {block.refs} refs, tables hold it {refs[block.id]} times"
            assert (block.home is None) == (block.refs > 0), f"block {block.id} with {block.refs} refs is in a wrong list"
            n_in_use += block.refs > 0
            n_cached += block.refs == 0 and block.node is not None
            n_free += block.refs == 0 and block.node is None
            if block.node is not None:
                assert block.node.blocks[block.group] is block, f"block {block.id} and its node disagree"
        assert (n_free, n_cached) == (self.pool.n_free, self.pool.n_cached), "list lengths"
        assert n_free + n_cached + n_in_use == self.pool.n_usable, "free + cached + in use != total"
        for node in self.tree.nodes():
            assert not node.is_idle, "a node that nothing needs"
            assert node.pins == pins.get(id(node), 0), "pins"
            for child in node.children.values():
                assert child.parent is node
                assert child.depth == node.depth + 1
