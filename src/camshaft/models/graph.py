"""The verbs in which a network is said, and the Graph that saying it gives.

A family calls the verbs of a `Net`; each appends one frozen record and returns a `Value`, the index of that record. Nothing is computed
and no array is touched: weights are names. Executors walk the records in order: `runners.lower` makes a native program of them, and the
tests' oracle interprets them with numpy. Letters: T tokens of the step, R taken rows, D width of the residual stream.
"""

from __future__ import annotations

from msgspec import Struct

from camshaft.formats.spec import ModelSpec, RopeSpec

Value = int  # index in Graph.nodes of the record that makes it


class Embed(Struct, frozen=True):
    """[T] ids -> [T, D]: row id of `weight`, times `scale`."""

    weight: str
    scale: float

    @property
    def inputs(self) -> tuple[Value, ...]:
        return ()


class RmsNorm(Struct, frozen=True):
    """[T, n] -> [T, n]: x / sqrt(mean(x^2) + eps) * weight."""

    x: Value
    weight: str
    eps: float

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class HeadNorm(Struct, frozen=True):
    """[T, n_heads * head_dim] -> the same: rms_norm of each head on its own, all with one weight [head_dim]."""

    x: Value
    weight: str
    eps: float
    n_heads: int
    head_dim: int

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class Linear(Struct, frozen=True):
    """[T, n] -> [T, n_out]: x @ weight.T + bias; weight is [n_out, n]."""

    x: Value
    weight: str
    n_out: int
    bias: str | None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class Rope(Struct, frozen=True):
    """[T, n_heads * head_dim] -> the same: turns the first rope.dim of each head by the token's position, half-split pairing."""

    x: Value
    n_heads: int
    head_dim: int
    rope: RopeSpec

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class Attention(Struct, frozen=True):
    """q [T, n_heads * head_dim], k and v [T, n_kv_heads * head_dim] -> [T, n_heads * head_dim].

    Stores k and v under `layer`, then each token attends to its sequence up to itself, and no further back than `window` tokens.
    """

    q: Value
    k: Value
    v: Value
    layer: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    window: int | None
    scale: float
    softcap: float | None

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.q, self.k, self.v)


class SiluMul(Struct, frozen=True):
    """[T, n] and [T, n] -> [T, n]: silu(gate) * up."""

    gate: Value
    up: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.gate, self.up)


class GeluMul(Struct, frozen=True):
    """[T, n] and [T, n] -> [T, n]: gelu(gate) * up, gelu in its tanh form."""

    gate: Value
    up: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.gate, self.up)


class Add(Struct, frozen=True):
    """[T, n] and [T, n] -> [T, n]."""

    a: Value
    b: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.a, self.b)


class TakeRows(Struct, frozen=True):
    """[T, n] -> [R, n]: the rows whose logits somebody wants."""

    x: Value

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class Head(Struct, frozen=True):
    """[R, n] -> [R, vocab]: the logits."""

    x: Value
    weight: str

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


class Softcap(Struct, frozen=True):
    """[R, n] -> [R, n]: cap * tanh(x / cap)."""

    x: Value
    cap: float

    @property
    def inputs(self) -> tuple[Value, ...]:
        return (self.x,)


Node = Embed | RmsNorm | HeadNorm | Linear | Rope | Attention | SiluMul | GeluMul | Add | TakeRows | Head | Softcap


class Graph(Struct, frozen=True):
    """A network: records in order of execution; each reads only earlier ones. `widths[v]` is the number of columns of value v."""

    spec: ModelSpec
    nodes: tuple[Node, ...]
    widths: tuple[int, ...]


class Net:
    """Collects the records of one network. Each verb checks the widths it joins and raises ValueError where they do not fit."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._nodes: list[Node] = []
        self._widths: list[int] = []

    def embed(self, weight: str) -> Value:
        return self._push(Embed(weight, self._spec.embed_scale), self._spec.d_model)

    def rms_norm(self, x: Value, weight: str) -> Value:
        return self._push(RmsNorm(x, weight, self._spec.norm_eps), self._widths[x])

    def head_norm(self, x: Value, weight: str) -> Value:
        return self._push(HeadNorm(x, weight, self._spec.norm_eps, self._heads_of(x), self._spec.head_dim), self._widths[x])

    def linear(self, x: Value, weight: str, n_out: int, *, bias: str | None = None) -> Value:
        return self._push(Linear(x, weight, n_out, bias), n_out)

    def rope(self, x: Value, rope: RopeSpec) -> Value:
        return self._push(Rope(x, self._heads_of(x), self._spec.head_dim, rope), self._widths[x])

    def attention(self, q: Value, k: Value, v: Value, layer: int) -> Value:
        spec = self._spec
        if self._heads_of(q) != spec.n_heads or self._heads_of(k) != spec.n_kv_heads or self._heads_of(v) != spec.n_kv_heads:
            raise ValueError(f"layer {layer}: q, k and v must have {spec.n_heads}, {spec.n_kv_heads} and {spec.n_kv_heads} heads")
        window = spec.window if spec.is_windowed(layer) else None
        scale = spec.head_dim**-0.5 if spec.attn_scale is None else spec.attn_scale
        node = Attention(q, k, v, layer, spec.n_heads, spec.n_kv_heads, spec.head_dim, window, scale, spec.attn_softcap)
        return self._push(node, self._widths[q])

    def silu_mul(self, gate: Value, up: Value) -> Value:
        return self._push(SiluMul(gate, up), self._same_width(gate, up))

    def gelu_mul(self, gate: Value, up: Value) -> Value:
        return self._push(GeluMul(gate, up), self._same_width(gate, up))

    def add(self, a: Value, b: Value) -> Value:
        return self._push(Add(a, b), self._same_width(a, b))

    def take_rows(self, x: Value) -> Value:
        return self._push(TakeRows(x), self._widths[x])

    def narrow(self, layer: int, *values: Value) -> tuple[Value, ...]:
        """What goes on after a layer's attention: all rows, or after the last one only those whose logits somebody wants."""
        return values if layer < self._spec.n_layers - 1 else tuple(self.take_rows(x) for x in values)

    def head(self, x: Value, weight: str) -> Value:
        return self._push(Head(x, weight), self._spec.vocab_size)

    def softcap(self, x: Value, cap: float | None) -> Value:
        """Without a cap there is nothing to say."""
        return x if cap is None else self._push(Softcap(x, cap), self._widths[x])

    def graph(self) -> Graph:
        return Graph(self._spec, tuple(self._nodes), tuple(self._widths))

    def _push(self, node: Node, width: int) -> Value:
        self._nodes.append(node)
        self._widths.append(width)
        return len(self._nodes) - 1

    def _heads_of(self, x: Value) -> int:
        n_heads, rest = divmod(self._widths[x], self._spec.head_dim)
        if rest:
            raise ValueError(f"a width of {self._widths[x]} is not a whole number of heads of {self._spec.head_dim}")
        return n_heads

    def _same_width(self, a: Value, b: Value) -> int:
        if self._widths[a] != self._widths[b]:
            raise ValueError(f"widths differ: {self._widths[a]} and {self._widths[b]}")
        return self._widths[a]
