"""Tree: which prefix a cached block holds.

A chain per prefix: a full block is found by (parent, its token ids), from a root per (tenant, salt). The parent is the node itself, not its
digest, and a lookup by hash ends in a comparison of all ids. So two prefixes are one only if every token agrees: no collision mixes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from camshaft.kv.block import Block, Node


class Root(Node):
    """Where the chains of one tenant's salted space begin."""

    __slots__ = ("key",)

    def __init__(self, key: tuple[str, str], n_groups: int) -> None:
        super().__init__(None, (), n_groups)
        self.key = key


class Tree:
    """All chains. A node lives while a block, a child or a table needs it."""

    def __init__(self, block_size: int, n_groups: int) -> None:
        self._block_size = block_size
        self._n_groups = n_groups
        # Two fields, not one joined string: tenant "a" with salt "bc" must never meet tenant "ab" with salt "c".
        self._roots: dict[tuple[str, str], Root] = {}

    def pin_root(self, tenant: str, salt: str) -> Node:
        """The root of one tenant's salted space, pinned for the caller."""
        key = (tenant, salt)
        root = self._roots.get(key)
        if root is None:
            root = self._roots[key] = Root(key, self._n_groups)
        root.pins += 1
        return root

    def move_pin(self, old: Node, new: Node) -> Node:
        new.pins += 1
        old.pins -= 1
        return new

    def unpin(self, node: Node) -> None:
        """Give a pin back; the chain above disappears as far as nothing else needs it."""
        node.pins -= 1
        self._prune(node)

    def walk(self, root: Node, ids: Sequence[int]) -> Iterator[Node]:
        """Nodes along `ids`, whole blocks only, as far as they exist."""
        size = self._block_size
        node: Node | None = root
        for start in range(0, len(ids) - size + 1, size):
            assert node is not None
            node = node.children.get(tuple(ids[start : start + size]))
            if node is None:
                return
            yield node

    def child(self, node: Node, ids: tuple[int, ...]) -> Node:
        """The node after `node` for these ids, made if missing."""
        found = node.children.get(ids)
        if found is None:
            found = node.children[ids] = Node(node, ids, self._n_groups)
        return found

    def forget(self, block: Block) -> None:
        """A cached block was evicted: its KV is no longer to be found."""
        node = block.node
        assert node is not None
        assert node.blocks[block.group] is block
        node.blocks[block.group] = None
        block.node = None
        block.uses = 0
        self._prune(node)

    def nodes(self) -> Iterator[Node]:
        """Every node, roots included, for checks."""
        stack: list[Node] = list(self._roots.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())

    def _prune(self, node: Node) -> None:
        while node.parent is not None and node.is_idle:
            parent = node.parent
            del parent.children[node.ids]
            node = parent
        if isinstance(node, Root) and node.is_idle:
            del self._roots[node.key]
