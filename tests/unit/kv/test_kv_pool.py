"""Blocks, their lists and the pool."""

from __future__ import annotations

import pytest

from camshaft.kv.block import Block, BlockList
from camshaft.kv.evict import Lru
from camshaft.kv.pool import Pool
from camshaft.kv.tree import Tree
from camshaft.kv.worth import PLAIN


def test_a_block_leaves_the_middle_of_a_list() -> None:
    blocks, line = [Block(i, PLAIN) for i in range(4)], BlockList()
    for block in blocks:
        line.push(block)
    line.remove(blocks[1])
    assert [b.id for b in line] == [0, 2, 3]
    assert len(line) == 3
    assert line.pop() is blocks[0]
    line.push(blocks[1])
    assert [b.id for b in line] == [2, 3, 1]
    assert blocks[0].home is None


def test_block_zero_is_never_handed_out() -> None:
    pool = Pool(5, Lru())
    taken = [pool.take(0, 0.0, lambda block: None).id for _ in range(4)]
    assert sorted(taken) == [1, 2, 3, 4]
    assert pool.n_available == 0


def test_free_cached_and_in_use_add_up() -> None:
    pool, tree = Pool(4, Lru()), Tree(2, 1)
    block = pool.take(0, 0.0, tree.forget)
    node = tree.child(tree.pin_root("", ""), (1, 2))
    node.blocks[0], block.node = block, node
    assert (pool.n_free, pool.n_cached, pool.n_in_use) == (2, 0, 1)
    pool.drop(block, 1.0)
    assert (pool.n_free, pool.n_cached, pool.n_in_use) == (2, 1, 0)
    pool.hold(block)
    assert (pool.n_free, pool.n_cached, pool.n_in_use) == (2, 0, 1)


def test_free_blocks_go_before_cached_ones() -> None:
    pool, tree = Pool(3, Lru()), Tree(2, 1)
    cached = pool.take(0, 0.0, tree.forget)
    node = tree.child(tree.pin_root("", ""), (1, 2))
    node.blocks[0], cached.node = cached, node
    pool.drop(cached, 0.0)
    assert pool.take(0, 0.0, tree.forget) is not cached
    assert pool.take(0, 0.0, tree.forget) is cached
    assert pool.evicted == {"lru": 1}
    assert node.blocks[0] is None, "what was evicted is not to be found any more"


def test_letting_go_twice_is_a_bug_that_shows() -> None:
    pool = Pool(3, Lru())
    block = pool.take(0, 0.0, lambda b: None)
    pool.drop(block, 0.0)
    with pytest.raises(AssertionError, match="nobody"):
        pool.drop(block, 0.0)
