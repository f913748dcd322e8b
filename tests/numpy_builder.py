"""A stand-in for the native Builder that computes with numpy in float64: one whole sequence, every row taken, no cache.

With it the lowering (fusion, buffers, KV places) is held against the graph's oracle without the native module. Each node's name is kept in
`calls`, so that a test can say what was fused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from camshaft._native import Part
from camshaft.formats.spec import RopeSpec
from camshaft.models.graph import Attention
from graph_numpy import Array, Weights, attend, inv_freq, rms_norm, rotate


class NumpyNames:
    """`lower`'s Names: an id is an index into `tables`."""

    def __init__(self, weights: Weights) -> None:
        self.tables: list[Array] = []
        self._weights = weights

    def matrix(self, name: str, rows: int, cols: int) -> int:
        assert self._weights(name).shape == (rows, cols), name
        return self._table(self._weights(name))

    def vector(self, name: str, n: int) -> int:
        assert self._weights(name).shape == (n,), name
        return self._table(self._weights(name))

    def rope(self, rope: RopeSpec) -> int:
        return self._table(inv_freq(rope))

    def _table(self, table: Array) -> int:
        self.tables.append(table.astype(np.float64))
        return len(self.tables) - 1


class NumpyBuilder:
    """The nodes of `_native.Builder` over the tables of `names`."""

    def __init__(self, names: NumpyNames, n_kv_heads: int, head_dim: int) -> None:
        self.calls: list[str] = []
        self.widths: list[int] = []
        self.kv_places: list[tuple[int, int]] = []
        self.floats_per_token = 0  # what lower() returned
        self.tables = names.tables
        self._heads = (n_kv_heads, head_dim)
        self._run: list[Callable[[], None]] = []
        self._buffers: list[Array] = []
        self._ids: NDArray[np.int64] = np.empty(0, np.int64)
        self._logits: Array = np.empty((0, 0))

    def logits(self, ids: Sequence[int]) -> Array:
        self._ids = np.asarray(ids)
        # Not a number until written: a read of a stale or unwritten column shows.
        self._buffers = [np.full((len(ids), width), np.nan) for width in self.widths]
        for node in self._run:
            node()
        return self._logits

    def buffer(self, width: int) -> int:
        self.widths.append(width)
        return len(self.widths) - 1

    def embed(self, dst: int, weight: int, scale: float) -> None:
        self._node("embed", lambda: self._set(dst, self.tables[weight][self._ids] * scale))

    def rms_norm(self, dst: int, src: int, weight: int, eps: float) -> None:
        self._node("rms_norm", lambda: self._set(dst, rms_norm(self._buffers[src], self.tables[weight], eps)))

    def head_norm(self, buf: int, col: int, n_heads: int, head_dim: int, weight: int, eps: float) -> None:
        def run() -> None:
            view = self._buffers[buf][:, col : col + n_heads * head_dim]
            view[:] = rms_norm(view.reshape(-1, n_heads, head_dim), self.tables[weight], eps).reshape(view.shape)

        self._node("head_norm", run)

    def linear(self, src: int, parts: Sequence[Part], accumulate: bool) -> None:
        def run() -> None:
            x = self._buffers[src].copy()
            for weight, bias, dst, col in parts:
                y = x @ self.tables[weight].T + (self.tables[bias] if bias >= 0 else 0.0)
                view = self._buffers[dst][:, col : col + y.shape[1]]
                view[:] = view + y if accumulate else y

        self._node(f"linear{len(parts)}{'+' if accumulate else ''}", run)

    def rope(self, buf: int, col: int, n_heads: int, head_dim: int, table: int) -> None:
        def run() -> None:
            view = self._buffers[buf][:, col : col + n_heads * head_dim]
            view[:] = rotate(view.reshape(-1, n_heads, head_dim), self.tables[table]).reshape(view.shape)

        self._node("rope", run)

    def attention(self, dst: int, q: int, q_col: int, kv: int, k_col: int, v_col: int, **rest: float) -> None:  # the native signature
        n_kv_heads, head_dim = self._heads
        n_heads = int(rest["n_heads"])
        window = int(rest["window"]) or None
        node = Attention(0, 0, 0, 0, n_heads, n_kv_heads, head_dim, window, rest["scale"], rest["softcap"] or None)
        self.kv_places.append((int(rest["group"]), int(rest["layer"])))

        def run() -> None:
            d_kv = n_kv_heads * head_dim
            q_, kv_ = self._buffers[q][:, q_col : q_col + n_heads * head_dim], self._buffers[kv]
            self._set(dst, attend(node, q_, kv_[:, k_col : k_col + d_kv], kv_[:, v_col : v_col + d_kv]))

        self._node("attention", run)

    def silu_mul(self, dst: int, src: int, gate_col: int, up_col: int, n: int) -> None:
        def run() -> None:
            gate, up = self._buffers[src][:, gate_col : gate_col + n], self._buffers[src][:, up_col : up_col + n]
            self._set(dst, gate / (1 + np.exp(-gate)) * up)

        self._node("silu_mul", run)

    def gelu_mul(self, dst: int, src: int, gate_col: int, up_col: int, n: int) -> None:
        def run() -> None:
            gate, up = self._buffers[src][:, gate_col : gate_col + n], self._buffers[src][:, up_col : up_col + n]
            self._set(dst, 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3))) * up)

        self._node("gelu_mul", run)

    def add(self, dst: int, a: int, b: int) -> None:
        self._node("add", lambda: self._set(dst, self._buffers[a] + self._buffers[b]))

    def take_rows(self, dst: int, src: int) -> None:
        self._node("take_rows", lambda: self._set(dst, self._buffers[src]))

    def head(self, src: int, weight: int, softcap: float) -> None:
        def run() -> None:
            y = self._buffers[src] @ self.tables[weight].T
            self._logits = softcap * np.tanh(y / softcap) if softcap else y

        self._node("head", run)

    def _set(self, dst: int, value: Array) -> None:
        assert self._buffers[dst].shape == value.shape
        self._buffers[dst][:] = value

    def _node(self, name: str, run: Callable[[], None]) -> None:
        self.calls.append(name)
        self._run.append(run)
