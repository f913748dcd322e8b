"""The manager: sharing, copies, windows, and books that always balance."""

from __future__ import annotations

import pytest

from camshaft.kv.evict import Lru
from camshaft.kv.manager import Claim, Grant, KVManager
from camshaft.kv.table import Table
from camshaft.types import Capacity, KVGroup

FULL = (KVGroup(1),)


def manager(n_blocks: int = 33, groups: tuple[KVGroup, ...] = FULL, max_tokens: int = 8) -> KVManager:
    return KVManager(Capacity(1000, 1000, 4, n_blocks, groups, 8, max_tokens), Lru())


def computed(kv: KVManager, ids: list[int], tenant: str = "", salt: str = "") -> Table:
    """A table whose tokens are all computed."""
    grant = kv.admit(Claim(ids, len(ids), tenant, salt), 0.0)
    assert grant is not None
    assert kv.reserve(grant.table, len(ids), 0.0)
    kv.take_copies(grant.table)
    kv.commit(grant.table, ids, len(ids), 0.0)
    return grant.table


def admit(kv: KVManager, ids: list[int], tenant: str = "", salt: str = "", *, reuse: bool = True) -> Grant:
    grant = kv.admit(Claim(ids, len(ids) + 1, tenant, salt, reuse), 1.0)
    assert grant is not None
    return grant


def test_whole_blocks_of_a_known_prefix_are_shared() -> None:
    kv = manager()
    first = computed(kv, list(range(10)))
    second, n = admit(kv, [*range(8), 90, 91, 92])
    assert n == 8
    assert second.blocks[0][:2] == first.blocks[0][:2]
    assert second.blocks[0][2] is not first.blocks[0][2]
    assert (kv.n_queried, kv.n_hit) == (21, 8)
    kv.check([first, second])


def test_the_last_token_is_never_part_of_the_match_and_its_block_is_copied() -> None:
    kv = manager()
    first = computed(kv, list(range(8)))
    second, n = admit(kv, list(range(8)))
    assert n == 7
    (copy,) = kv.take_copies(second)
    assert copy.src == first.blocks[0][1].id  # type: ignore[union-attr]
    assert copy.dst == second.blocks[0][1].id  # type: ignore[union-attr]
    assert copy.dst != copy.src
    kv.check([first, second])
    kv.commit(second, list(range(8)), 8, 2.0)
    kv.check([first, second])


def test_a_copys_source_is_held_until_the_copy_is_made() -> None:
    kv = manager(n_blocks=5)
    first = computed(kv, list(range(8)))
    kv.release(first, 0.0)
    table, _ = admit(kv, list(range(8)))
    src = table.sources[0]
    assert src.refs == 1
    assert kv.pool.n_free == 0 or kv.pool.n_available < 2, "the source is not up for eviction"
    kv.take_copies(table)
    kv.commit(table, list(range(8)), 8, 1.0)
    assert src.refs == 0
    kv.check([table])


def test_a_full_hit_still_fits_into_a_pool_of_just_the_right_size() -> None:
    """Source and target of a copy are needed at once; where that is too much the block is computed again."""
    kv = manager(n_blocks=3)
    ids = list(range(7))
    kv.release(computed(kv, ids), 0.0)
    grant = kv.admit(Claim(list(range(8)), 8), 1.0)
    assert grant is not None
    kv.release(grant.table, 1.0)
    kv.release(computed(kv, list(range(8))), 2.0)
    grant = kv.admit(Claim(list(range(8)), 8), 3.0)
    assert grant is not None
    kv.check([grant.table])


@pytest.mark.parametrize(("tenant", "salt"), [("b", ""), ("", "s"), ("a", "s"), ("as", "")])
def test_another_tenants_kv_is_not_found(tenant: str, salt: str) -> None:
    kv = manager()
    first = computed(kv, list(range(12)), tenant="a")
    second, n = admit(kv, list(range(12)), tenant, salt)
    assert n == 0
    assert not {b.id for b in first.held()} & {b.id for b in second.held()}


def test_a_request_that_must_compute_everything_reads_nothing() -> None:
    kv = manager()
    computed(kv, list(range(12)))
    assert admit(kv, list(range(12)), reuse=False).n_computed == 0


def test_without_prefix_caching_blocks_go_straight_back() -> None:
    kv = KVManager(Capacity(1000, 1000, 4, 9, FULL, 8, 8), Lru(), prefix_caching=False)
    kv.release(computed(kv, list(range(12))), 0.0)
    assert (kv.pool.n_free, kv.pool.n_cached) == (8, 0)


def test_blocks_are_freed_tail_first() -> None:
    kv = manager(n_blocks=5)
    table = computed(kv, list(range(16)))
    head, tail = table.blocks[0][0], table.blocks[0][3]
    kv.release(table, 0.0)
    other = computed(kv, [100, 101, 102, 103])
    assert other.blocks[0][0] is tail
    assert head is not None
    assert head.node is not None, "the head of a prefix outlives its tail"


def test_an_evicted_prefix_is_not_found() -> None:
    kv = manager(n_blocks=4)
    kv.release(computed(kv, list(range(12))), 0.0)
    kv.release(computed(kv, list(range(100, 112))), 1.0)
    assert admit(kv, list(range(11))).n_computed == 0


def test_what_does_not_fit_changes_nothing() -> None:
    kv = manager(n_blocks=6)
    first = computed(kv, list(range(12)))
    before = (kv.pool.n_free, kv.pool.n_cached, [b.refs for b in kv.pool.blocks], len(list(kv.tree.nodes())))
    assert kv.admit(Claim([*range(8), *range(500, 520)], 28), 1.0) is None
    assert not kv.reserve(first, 40, 1.0)
    assert before == (kv.pool.n_free, kv.pool.n_cached, [b.refs for b in kv.pool.blocks], len(list(kv.tree.nodes())))
    kv.check([first])


def test_siblings_share_the_prompts_blocks_and_copy_the_partial_one() -> None:
    kv = manager()
    prompt = list(range(10))
    leader = computed(kv, prompt)
    grant = kv.admit(Claim(prompt, 11), 1.0, leader)
    assert grant is not None
    assert grant.n_computed == 9
    assert grant.table.blocks[0][:2] == leader.blocks[0][:2]
    (copy,) = kv.take_copies(grant.table)
    assert copy.src == leader.blocks[0][2].id  # type: ignore[union-attr]


def test_a_twins_block_is_copied_only_where_all_before_it_is_shared() -> None:
    """Its block holds the end of the prompt; with a gap before it, the copy would stand in the wrong place."""
    kv = manager()
    prompt = list(range(10))
    leader = computed(kv, prompt)
    kv.prefix_caching = False
    stranger, _ = admit(kv, prompt)
    kv.prefix_caching = True
    for node in list(kv.tree.nodes())[-1:]:
        block = node.blocks[0]
        assert block is not None
        node.blocks[0] = None
        block.node = None
    grant = kv.admit(Claim(prompt, 11), 1.0, leader)
    assert grant is not None
    assert grant.n_computed == 4
    assert not grant.table.sources
    assert stranger.blocks[0]


def test_a_window_gives_blocks_back_as_it_passes() -> None:
    kv = manager(groups=(KVGroup(1, window=6),))
    table = computed(kv, list(range(30)))
    # The token at position 30 sees positions 25 to 30: blocks 6 and 7.
    assert [i for i, b in enumerate(table.blocks[0]) if b is not None] == [6, 7]
    assert table.first == [6]
    assert kv.pool.n_in_use == 2
    assert any(set(p.ids) == {0} for p in kv.take_patches(table)), "the runner hears that they are gone"
    kv.check([table])


def test_a_windowed_hit_needs_the_windows_blocks_only() -> None:
    kv = manager(groups=(KVGroup(1), KVGroup(1, window=6)), n_blocks=65)
    kv.release(computed(kv, list(range(32))), 0.0)
    lost = [n.blocks[1] for n in kv.tree.nodes() if n.depth in (1, 2)]
    for block in lost:
        assert block is not None
        kv.pool.evictor.remove(block)
        kv.tree.forget(block)
        kv.pool._free.push(block)
    table, n = admit(kv, [*range(32), 99])
    assert n == 32
    assert table.first == [0, 6]
    kv.check([table])


def test_a_windowed_hit_ends_where_the_windows_blocks_are_missing() -> None:
    """The hit is as long as the worst of the groups allows, never a full group's length with a window's hole in it."""
    kv = manager(groups=(KVGroup(1), KVGroup(1, window=6)), n_blocks=65)
    kv.release(computed(kv, list(range(32))), 0.0)
    (lost,) = [n.blocks[1] for n in kv.tree.nodes() if n.depth == 8]
    assert lost is not None
    kv.pool.evictor.remove(lost)
    kv.tree.forget(lost)
    kv.pool._free.push(lost)
    table, n = admit(kv, [*range(32), 99])
    assert n == 28
    kv.check([table])


def test_lengths_that_can_never_fit_are_known_beforehand() -> None:
    assert manager(n_blocks=9).max_tokens_alone() == 32
    assert manager(n_blocks=9, groups=(KVGroup(1), KVGroup(1))).max_tokens_alone() == 16
    # A window of 6 with chunks of 8 never holds more than 5 blocks, so the full group may have the other 5 of 10.
    assert manager(n_blocks=11, groups=(KVGroup(1), KVGroup(1, window=6))).max_tokens_alone() == 20
    assert manager(n_blocks=11, groups=(KVGroup(1, window=6),)).max_tokens_alone() > 1 << 40


def test_waste_counts_token_slots_that_hold_nothing() -> None:
    kv = manager()
    table, _ = admit(kv, list(range(5)))
    assert kv.n_wasted([(table, 0)]) == 8
    kv.commit(table, list(range(5)), 5, 1.0)
    assert kv.n_wasted([(table, 5)]) == 3


def test_the_check_finds_a_lost_reference() -> None:
    kv = manager()
    table, _ = admit(kv, list(range(8)))
    block = table.blocks[0][0]
    assert block is not None
    block.refs += 1
    with pytest.raises(AssertionError, match="refs"):
        kv.check([table])
    with pytest.raises(AssertionError):
        kv.check([])
