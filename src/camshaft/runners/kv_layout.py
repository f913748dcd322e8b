"""Which layers share a KV block: the arithmetic that lets layers with and without a window live in one pool.

All blocks have equal bytes, so that one free list serves every group: a block holds block_size tokens of `layers_per_block` layers.
Layers of one kind (windowed or not) are dealt into groups of that many, in order; a kind whose count it does not divide leaves padding
in its last group.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from camshaft.types import KVGroup

# A group costs a table entry and a hash lookup for each block of a sequence. Four of them weigh as one padded layer.
GROUPS_PER_PADDED_LAYER = 4


class KVPlace(Struct, frozen=True):
    """Where a layer's KV lies: which group, and which of the group's layers."""

    group: int
    index: int


class KVLayout(Struct, frozen=True):
    """`places[i]` is layer i's. Groups that keep everything come first."""

    layers_per_block: int
    groups: tuple[KVGroup, ...]
    places: tuple[KVPlace, ...]

    @property
    def padding(self) -> int:
        """Layers' worth of bytes that no layer uses, over all groups."""
        return self.layers_per_block * len(self.groups) - len(self.places)


def kv_layout(windows: Sequence[int | None]) -> KVLayout:
    """The cheapest layout for layers with these windows (None: none), in padded layers plus a quarter of a layer a group.

    Gemma 3 270M, 15 layers with a window and 3 without: 3 layers a block, 1 + 5 groups and no padding.
    """
    if not windows:
        raise ValueError("a network without attention has no KV")
    kinds = sorted(set(windows), key=lambda w: (w is not None, w or 0))
    layouts = (_deal(windows, kinds, g) for g in range(1, len(windows) + 1))
    return min(layouts, key=lambda lay: (lay.padding + len(lay.groups) / GROUPS_PER_PADDED_LAYER, len(lay.groups)))


def _deal(windows: Sequence[int | None], kinds: Sequence[int | None], layers_per_block: int) -> KVLayout:
    groups: list[KVGroup] = []
    places: dict[int, KVPlace] = {}
    for kind in kinds:
        layers = [i for i, window in enumerate(windows) if window == kind]
        for begin in range(0, len(layers), layers_per_block):
            members = layers[begin : begin + layers_per_block]
            places |= {layer: KVPlace(len(groups), index) for index, layer in enumerate(members)}
            groups.append(KVGroup(n_layers=len(members), window=kind))
    return KVLayout(layers_per_block, tuple(groups), tuple(places[i] for i in range(len(windows))))


def blocks_for(groups: Sequence[KVGroup], n_tokens: int, block_size: int, max_chunk: int) -> int:
    """Most blocks that a sequence of `n_tokens` holds at once, over all groups, when it is computed in chunks of up to `max_chunk`.

    A windowed group keeps what the oldest token of a chunk still sees, and may straddle a block more at each end.
    """
    whole = -(-n_tokens // block_size)
    total = 0
    for group in groups:
        kept = whole if group.window is None else -(-(group.window + max_chunk) // block_size) + 1
        total += min(whole, kept)
    return total
