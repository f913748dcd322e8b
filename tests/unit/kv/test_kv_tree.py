"""Prefix lookups: exact by tokens, apart by tenant and salt, and gone without a trace."""

from __future__ import annotations

from camshaft.kv.tree import Tree

# Python's hash of an int is its value modulo 2^61 - 1, so these two hash alike, and so do tuples of them.
TWIN = (1 << 61) - 1


def test_two_prefixes_with_equal_hashes_stay_apart() -> None:
    assert hash((0, 5)) == hash((TWIN, 5))
    tree = Tree(2, 1)
    root = tree.pin_root("", "")
    node = tree.child(root, (0, 5))
    assert [n is node for n in tree.walk(root, [0, 5, 9])] == [True]
    assert list(tree.walk(root, [TWIN, 5, 9])) == []


def test_the_same_block_after_another_prefix_is_another_block() -> None:
    tree = Tree(2, 1)
    root = tree.pin_root("", "")
    after_one = tree.child(tree.child(root, (1, 1)), (9, 9))
    after_two = tree.child(tree.child(root, (2, 2)), (9, 9))
    assert after_one is not after_two
    assert list(tree.walk(root, [2, 2, 9, 9]))[-1] is after_two


def test_tenant_and_salt_are_two_fields_and_not_one_string() -> None:
    tree = Tree(2, 1)
    assert tree.pin_root("a", "bc") is not tree.pin_root("ab", "c")
    assert tree.pin_root("", "x") is not tree.pin_root("x", "")
    assert tree.pin_root("a", "bc") is tree.pin_root("a", "bc")


def test_what_nothing_needs_disappears() -> None:
    tree = Tree(2, 1)
    root = tree.pin_root("t", "")
    tip = tree.move_pin(root, tree.child(tree.child(root, (1, 2)), (3, 4)))
    assert len(list(tree.nodes())) == 3
    tree.unpin(tip)
    assert list(tree.nodes()) == []


def test_only_whole_blocks_are_found() -> None:
    tree = Tree(4, 1)
    root = tree.pin_root("", "")
    tree.child(root, (1, 2, 3, 4))
    assert len(list(tree.walk(root, [1, 2, 3]))) == 0
    assert len(list(tree.walk(root, [1, 2, 3, 4, 5, 6]))) == 1
