"""From a graph to a native program, with the fusions that the native nodes offer.

- Projections of one value (q, k, v; gate, up) become one linear node: it is quantised once, they share a buffer.
- `x + linear(a)` becomes a linear node that accumulates into x, where the graph adds directly (in Gemma a norm stands between).
- Head norms and rotations happen in place; so does a norm or an add whose operand nobody reads again.
- A softcap after the head is the head's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from camshaft._native import Builder, Part
from camshaft.formats.spec import RopeSpec
from camshaft.models import graph as verbs
from camshaft.models.graph import Graph, Value
from camshaft.runners.buffers import Buffers
from camshaft.runners.kv_layout import KVLayout


class Names(Protocol):
    """How what a graph names becomes ids of the builder."""

    def matrix(self, name: str, rows: int, cols: int) -> int: ...
    def vector(self, name: str, n: int) -> int: ...
    def rope(self, rope: RopeSpec) -> int: ...


def lower(graph: Graph, builder: Builder, names: Names, layout: KVLayout) -> int:
    """Adds the nodes of `graph` to `builder`, whose KV cache is declared, and returns the float32 that its buffers take for each token.

    Raises ValueError for a graph that the native nodes cannot say.
    """
    return _Lowering(graph, builder, names, layout).run()


class _Lowering:
    def __init__(self, graph: Graph, builder: Builder, names: Names, layout: KVLayout) -> None:
        self._graph = graph
        self._builder = builder
        self._names = names
        self._layout = layout
        self._at = Buffers(graph, builder.buffer)
        self._said: set[Value] = set()  # nodes that an earlier one has taken along
        self._linears: dict[Value, list[Value]] = {}  # value -> its projections
        for index, node in enumerate(graph.nodes):
            if isinstance(node, verbs.Linear):
                self._linears.setdefault(node.x, []).append(index)

    def run(self) -> int:
        for index, node in enumerate(self._graph.nodes):
            if index not in self._said:
                self._say(index, node)
            self._at.done(index, node.inputs)
        return self._at.total_width

    def _say(self, index: Value, node: verbs.Node) -> None:
        b, at, names, width = self._builder, self._at, self._names, self._graph.widths[index]
        match node:
            case verbs.Embed(weight=weight, scale=scale):
                b.embed(at.place(index), names.matrix(weight, self._graph.spec.vocab_size, width), scale)
            case verbs.RmsNorm(x=x, weight=weight, eps=eps):
                src = self._whole(x)
                b.rms_norm(self._over_or_new(index, x), src, names.vector(weight, width), eps)
            case verbs.HeadNorm(x=x, weight=weight, eps=eps):
                buf, col = self._in_place(index, x)
                b.head_norm(buf, col, node.n_heads, node.head_dim, names.vector(weight, node.head_dim), eps)
            case verbs.Linear():
                self._linear(index, node)
            case verbs.Rope(x=x):
                buf, col = self._in_place(index, x)
                b.rope(buf, col, node.n_heads, node.head_dim, names.rope(node.rope))
            case verbs.Attention():
                self._attention(index, node)
            case verbs.SiluMul(gate=gate, up=up):
                src = self._one_buffer(gate, up)
                b.silu_mul(at.place(index), src, at[gate].col, at[up].col, width)
            case verbs.GeluMul(gate=gate, up=up):
                src = self._one_buffer(gate, up)
                b.gelu_mul(at.place(index), src, at[gate].col, at[up].col, width)
            case verbs.Add(a=x, b=y):
                left, right = self._whole(x), self._whole(y)
                b.add(self._over_or_new(index, x), left, right)
            case verbs.TakeRows(x=x):
                b.take_rows(at.place(index), self._whole(x))
            case verbs.Head(x=x, weight=weight):
                b.head(self._whole(x), names.matrix(weight, width, self._graph.widths[x]), self._cap_after(index))
            case verbs.Softcap():
                raise ValueError("softcap stands only right after the head")

    def _linear(self, index: Value, node: verbs.Linear) -> None:
        residual = self._residual(index)
        if residual is not None:
            buf, col = self._at.overlay(index, residual)
            self._at.overlay(index + 1, residual)
            self._said.add(index + 1)
            self._builder.linear(self._whole(node.x), [self._part(node, buf, col)], True)
            return
        together = self._siblings(index, node)
        self._at.place(*together)
        parts = [self._part(self._linear_at(value), *self._at[value]) for value in together]
        self._said.update(together)
        self._builder.linear(self._whole(node.x), parts, False)

    def _part(self, node: verbs.Linear, buf: int, col: int) -> Part:
        weight = self._names.matrix(node.weight, node.n_out, self._graph.widths[node.x])
        bias = -1 if node.bias is None else self._names.vector(node.bias, node.n_out)
        return Part(weight, bias, buf, col)

    def _siblings(self, index: Value, node: verbs.Linear) -> Sequence[Value]:
        """This projection and the later ones of the same value, but for those that add to a residual."""
        return [other for other in self._linears[node.x] if other >= index and self._residual(other) is None]

    def _linear_at(self, index: Value) -> verbs.Linear:
        node = self._graph.nodes[index]
        assert isinstance(node, verbs.Linear)
        return node

    def _residual(self, index: Value) -> Value | None:
        """The x of `x + linear`, if the next node is that add, and nobody else reads the product or, later, x."""
        if index + 1 >= len(self._graph.nodes) or self._at.uses(index) != 1:
            return None
        add = self._graph.nodes[index + 1]
        if not isinstance(add, verbs.Add) or index not in add.inputs or add.a == add.b:
            return None
        x = add.a if add.b == index else add.b
        return x if self._at.last_use(x) == index + 1 and self._graph.nodes[index].inputs[0] != x else None

    def _attention(self, index: Value, node: verbs.Attention) -> None:
        q, k, v = self._at[node.q], self._at[node.k], self._at[node.v]
        place = self._layout.places[node.layer]
        self._builder.attention(
            self._at.place(index),
            q.buf,
            q.col,
            self._one_buffer(node.k, node.v),
            k.col,
            v.col,
            group=place.group,
            layer=place.index,
            n_heads=node.n_heads,
            window=node.window or 0,
            scale=node.scale,
            softcap=node.softcap or 0.0,
        )

    def _over_or_new(self, index: Value, x: Value) -> int:
        """A buffer for value `index`: x's own, if this is x's last use and x fills its buffer; else another."""
        if self._at.last_use(x) == index and self._at.fills_buffer(x):
            return self._at.overlay(index, x).buf
        return self._at.place(index)

    def _in_place(self, index: Value, x: Value) -> tuple[int, int]:
        if self._at.uses(x) != 1:
            raise ValueError(f"node {index} works in place on value {x}, which another node reads as well")
        return self._at.overlay(index, x)

    def _whole(self, x: Value) -> int:
        """The buffer of a value that has it to itself: what a node without columns reads."""
        if not self._at.fills_buffer(x):
            raise ValueError(f"value {x} shares its buffer with other projections; only nodes that take a column can read it")
        return self._at[x].buf

    def _one_buffer(self, a: Value, b: Value) -> int:
        if self._at[a].buf != self._at[b].buf:
            raise ValueError(f"values {a} and {b} must be projections of one value")
        return self._at[a].buf

    def _cap_after(self, index: Value) -> float:
        after = self._graph.nodes[index + 1 : index + 2]
        if not after or not isinstance(after[0], verbs.Softcap):
            return 0.0
        self._said.add(index + 1)
        return after[0].cap
