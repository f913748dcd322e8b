"""Where a graph's values lie: columns of native buffers, reused as soon as nobody reads them any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from camshaft.models.graph import Graph, Value


class Place(NamedTuple):
    """A value's columns: from `col` on in native buffer `buf`."""

    buf: int
    col: int


class Buffers:
    """Hands out places. A buffer returns to the free list of its width once the last reader of every value in it is done."""

    def __init__(self, graph: Graph, make: Callable[[int], int]) -> None:
        """`make(width)` creates a native buffer and returns its id."""
        self._widths = graph.widths
        self._make = make
        self._last_use: dict[Value, int] = {}  # value -> index of the last node that reads it
        self._uses: dict[Value, int] = defaultdict(int)
        for index, node in enumerate(graph.nodes):
            for value in node.inputs:
                self._last_use[value] = index
                self._uses[value] += 1
        self._places: dict[Value, Place] = {}
        self._live: dict[int, set[Value]] = {}  # buffer -> values in it that are still to be read
        self._width_of: dict[int, int] = {}
        self._free: dict[int, list[int]] = defaultdict(list)

    def __getitem__(self, value: Value) -> Place:
        return self._places[value]

    @property
    def total_width(self) -> int:
        """Columns of all buffers made so far."""
        return sum(self._width_of.values())

    def uses(self, value: Value) -> int:
        return self._uses[value]

    def last_use(self, value: Value) -> int:
        """Index of the last node that reads `value`; -1 for the graph's own output."""
        return self._last_use.get(value, -1)

    def fills_buffer(self, value: Value) -> bool:
        return self._widths[value] == self._width_of[self._places[value].buf]

    def place(self, *values: Value) -> int:
        """Lays `values` side by side in one buffer and returns it."""
        width = sum(self._widths[v] for v in values)
        buf = self._free[width].pop() if self._free[width] else self._make(width)
        self._width_of[buf] = width
        self._live[buf] = set(values)
        col = 0
        for value in values:
            self._places[value] = Place(buf, col)
            col += self._widths[value]
        return buf

    def overlay(self, value: Value, on: Value) -> Place:
        """Puts `value` where `on` lies: an operation in place, for which nobody may read `on` again afterwards."""
        place = self._places[value] = self._places[on]
        self._live[place.buf].add(value)
        return place

    def done(self, index: int, inputs: tuple[Value, ...]) -> None:
        """Node `index` has run: free the buffers that it was the last to read."""
        for value in set(inputs):
            # The logits have no place: the head keeps them to itself.
            if self._last_use[value] != index or value not in self._places:
                continue
            buf = self._places[value].buf
            self._live[buf].remove(value)
            if not self._live[buf]:
                self._free[self._width_of[buf]].append(buf)
