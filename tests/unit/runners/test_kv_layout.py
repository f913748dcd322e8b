"""Which layers share a block."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from camshaft.runners.kv_layout import KVLayout, KVPlace, blocks_for, kv_layout
from camshaft.types import KVGroup

LOCAL_TO_GLOBAL = 6


def gemma(n_layers: int, window: int = 512) -> KVLayout:
    return kv_layout([None if (i + 1) % LOCAL_TO_GLOBAL == 0 else window for i in range(n_layers)])


@pytest.mark.parametrize("window", [None, 4096])
def test_layers_of_one_kind_are_one_group_without_padding(window: int | None) -> None:
    layout = kv_layout([window] * 30)
    assert layout.groups == (KVGroup(30, window),)
    assert layout.padding == 0
    assert layout.places[7] == KVPlace(0, 7)


def test_gemma_270m_has_one_full_group_and_five_windowed_ones_without_padding() -> None:
    layout = gemma(18)
    assert layout.layers_per_block == 3
    assert layout.groups == (KVGroup(3, None), *[KVGroup(3, 512)] * 5)
    assert layout.padding == 0
    assert layout.places[5] == KVPlace(0, 0)
    assert layout.places[6] == KVPlace(2, 2)  # the sixth local layer


def test_a_little_padding_beats_many_groups() -> None:
    layout = gemma(34)  # 29 local and 5 global layers have no common divisor
    assert (layout.layers_per_block, len(layout.groups), layout.padding) == (5, 7, 1)


@given(st.lists(st.sampled_from([None, None, 64, 512]), min_size=1, max_size=64))
def test_every_layer_has_a_place_of_its_own_among_layers_of_its_window(windows: list[int | None]) -> None:
    layout = kv_layout(windows)
    assert len(set(layout.places)) == len(windows)
    for window, place in zip(windows, layout.places, strict=True):
        group = layout.groups[place.group]
        assert group.window == window
        assert 0 <= place.index < group.n_layers <= layout.layers_per_block
    assert sum(group.n_layers for group in layout.groups) == len(windows)
    assert layout.padding >= 0


def test_a_network_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="without attention"):
        kv_layout([])


def test_blocks_of_a_sequence_count_every_group_and_forget_what_the_window_passed() -> None:
    full, local = KVGroup(3, None), KVGroup(3, 100)
    assert blocks_for([full], 1000, 32, 64) == 32
    assert blocks_for([local], 1000, 32, 64) == 7  # ceil((100 + 64) / 32) + 1
    assert blocks_for([local], 60, 32, 64) == 2  # never more than the sequence has
    assert blocks_for([full, local, local], 1000, 32, 64) == 32 + 7 + 7
