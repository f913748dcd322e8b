"""A random two-layer llama, built by hand: once as a native Program, once in numpy float64.

The first layer sees everything, the second a window: two KV groups, as in gemma3. Weights are float32 unless `quantise` says q8 or q4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from camshaft._native import Builder, Part, Program
from camshaft.types import SamplingParams

F32 = 0  # GGUF's number for float32
Ids = NDArray[np.int32]
NO_IDS: Ids = np.empty(0, np.int32)
GREEDY = SamplingParams(temperature=0, seed=0)


@dataclass(frozen=True)
class Shape:
    vocab: int = 97  # odd, so that every tail is met
    d: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    d_ff: int = 96
    windows: tuple[int, ...] = (0, 24)
    eps: float = 1e-5
    softcap: float = 0.0
    max_positions: int = 256

    @property
    def q(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv(self) -> int:
        return self.kv_heads * self.head_dim


@dataclass(frozen=True)
class Setup:
    """How the program runs; none of this may change a logit but isa, compute, kv_dtype and quantise."""

    isa: str = ""
    threads: int = 1
    compute: str = "f32"
    kv_dtype: str = "f32"
    quantise: str = ""
    block_size: int = 16
    n_blocks: int = 64
    max_tokens: int = 256
    max_slots: int = 8


@dataclass(frozen=True)
class Layer:
    attn_norm: NDArray[np.float32]
    qkv: tuple[NDArray[np.float32], ...]
    out: NDArray[np.float32]
    ffn_norm: NDArray[np.float32]
    gate: NDArray[np.float32]
    up: NDArray[np.float32]
    down: NDArray[np.float32]


@dataclass(frozen=True)
class TinyLlama:
    shape: Shape = field(default_factory=Shape)
    seed: int = 0

    def matrix(self, name: str, rows: int, cols: int) -> NDArray[np.float32]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return (rng.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32)

    def norm(self, name: str, n: int) -> NDArray[np.float32]:
        rng = np.random.default_rng([self.seed, *name.encode()])
        return (1 + 0.2 * rng.standard_normal(n)).astype(np.float32)

    def layer(self, i: int) -> Layer:
        s = self.shape
        qkv = tuple(self.matrix(f"{i}.{name}", rows, s.d) for name, rows in (("q", s.q), ("k", s.kv), ("v", s.kv)))
        return Layer(
            attn_norm=self.norm(f"{i}.attn_norm", s.d),
            qkv=qkv,
            out=self.matrix(f"{i}.out", s.d, s.q),
            ffn_norm=self.norm(f"{i}.ffn_norm", s.d),
            gate=self.matrix(f"{i}.gate", s.d_ff, s.d),
            up=self.matrix(f"{i}.up", s.d_ff, s.d),
            down=self.matrix(f"{i}.down", s.d, s.d_ff),
        )

    @property
    def embedding(self) -> NDArray[np.float32]:
        return self.matrix("embed", self.shape.vocab, self.shape.d) * 4

    @property
    def inv_freq(self) -> NDArray[np.float64]:
        half = self.shape.head_dim // 2
        return 10_000.0 ** (-np.arange(half) / half)

    # ------------------------------------------------------------------------------------------------ the program

    def build(self, setup: Setup) -> Program:
        s = self.shape
        b = Builder(
            isa=setup.isa,
            threads=setup.threads,
            compute=setup.compute,
            max_tokens=setup.max_tokens,
            max_slots=setup.max_slots,
            vocab_size=s.vocab,
        )
        b.kv_cache(
            block_size=setup.block_size, n_blocks=setup.n_blocks, dtype=setup.kv_dtype, n_layers_per_block=1, n_groups=len(s.windows),
            n_kv_heads=s.kv_heads, head_dim=s.head_dim,
        )  # fmt: skip
        table = b.rope_table(self.inv_freq, s.max_positions)
        embed = self._weight(b, self.embedding, setup)
        x, normed, attended, taken = b.buffer(s.d), b.buffer(s.d), b.buffer(s.q), b.buffer(s.d)
        qkv, pair, gated = b.buffer(s.q + 2 * s.kv), b.buffer(2 * s.d_ff), b.buffer(s.d_ff)
        b.embed(x, embed, 1.0)
        for i, window in enumerate(s.windows):
            layer = self.layer(i)
            b.rms_norm(normed, x, b.vector(layer.attn_norm), s.eps)
            columns = (0, s.q, s.q + s.kv)
            b.linear(normed, [Part(self._weight(b, w, setup), -1, qkv, col) for w, col in zip(layer.qkv, columns, strict=True)], False)
            b.rope(qkv, 0, s.heads + s.kv_heads, s.head_dim, table)
            b.attention(
                attended,
                qkv,
                0,
                qkv,
                s.q,
                s.q + s.kv,
                group=i,
                layer=0,
                n_heads=s.heads,
                window=window,
                scale=s.head_dim**-0.5,
                softcap=0.0,
            )
            b.linear(attended, [Part(self._weight(b, layer.out, setup), -1, x, 0)], True)
            b.rms_norm(normed, x, b.vector(layer.ffn_norm), s.eps)
            b.linear(
                normed,
                [Part(self._weight(b, layer.gate, setup), -1, pair, 0), Part(self._weight(b, layer.up, setup), -1, pair, s.d_ff)],
                False,
            )
            b.silu_mul(gated, pair, 0, s.d_ff, s.d_ff)
            b.linear(gated, [Part(self._weight(b, layer.down, setup), -1, x, 0)], True)
        b.take_rows(taken, x)
        b.rms_norm(taken, taken, b.vector(self.norm("final", s.d)), s.eps)
        b.head(taken, embed, s.softcap)
        return b.build()

    def _weight(self, b: Builder, w: NDArray[np.float32], setup: Setup) -> int:
        return b.weight(F32, w.shape[0], w.shape[1], np.ascontiguousarray(w), None, setup.quantise)

    # ---------------------------------------------------------------------------------------------------- in numpy

    def logits(self, ids: Sequence[int]) -> NDArray[np.float64]:
        """[len(ids), vocab] in float64, the whole sequence at once."""
        s, x = self.shape, self.embedding[np.asarray(ids)].astype(np.float64)
        for i, window in enumerate(s.windows):
            layer = self.layer(i)
            h = self._rms(x, layer.attn_norm)
            q, k, v = (h @ w.T.astype(np.float64) for w in layer.qkv)
            x = x + self._attend(self._rope(q), self._rope(k), v, window) @ layer.out.T
            h = self._rms(x, layer.ffn_norm)
            gate = h @ layer.gate.T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ layer.up.T)) @ layer.down.T
        logits = self._rms(x, self.norm("final", s.d)) @ self.embedding.T
        return s.softcap * np.tanh(logits / s.softcap) if s.softcap else logits

    def _rms(self, x: NDArray[np.float64], w: NDArray[np.float32]) -> NDArray[np.float64]:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.shape.eps) * w

    def _rope(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        heads = x.reshape(len(x), -1, self.shape.head_dim)
        angle = (np.arange(len(x))[:, None] * self.inv_freq)[:, None]
        a, b = np.split(heads, 2, axis=-1)
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    def _attend(self, q: NDArray[np.float64], k: NDArray[np.float64], v: NDArray[np.float64], window: int) -> NDArray[np.float64]:
        s, n = self.shape, len(q)
        behind = np.arange(n)[:, None] - np.arange(n)
        visible = (behind >= 0) & ((behind < window) if window else True)
        k, v = (np.repeat(t.reshape(n, s.kv_heads, s.head_dim), s.heads // s.kv_heads, axis=1) for t in (k, v))
        scores = np.where(visible, np.einsum("qhd,khd->hqk", q, k) * s.head_dim**-0.5, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(n, -1)


@dataclass(frozen=True)
class RowIn:
    slot: int
    start: int
    ids: Sequence[int]
    n_sample: int = 0
    score: bool = False


Top = list[tuple[int, float]]
RowOut = tuple[list[int], list[tuple[int, float, Top]], list[tuple[int, float, Top]]]  # ids, logprobs, scores


def run(
    program: Program,
    rows: Sequence[RowIn],
    *,
    patches: Sequence[int] = (),
    copies: Sequence[tuple[int, int]] = (),
    masks: dict[int, bytes] | None = None,
) -> list[RowOut]:
    """Program.run with lists instead of arrays."""
    ids = np.array([i for r in rows for i in r.ids], np.int32)
    table = np.array([[r.slot, r.start, len(r.ids), r.n_sample, int(r.score)] for r in rows], np.int32).reshape(-1, 5)
    return program.run(ids, table, np.array(patches, np.int32), np.array(copies, np.int32).reshape(-1, 2), masks or {})


def open_slot(
    program: Program, slot: int, prompt: Sequence[int], params: SamplingParams = GREEDY, *, output: Sequence[int] = (), choice: int = 0
) -> None:
    program.open(slot, params, choice, np.array(prompt, np.int32), np.array(output, np.int32))


def table_patch(slot: int, blocks: Sequence[Sequence[int]], index: int = 0) -> list[int]:
    """Patches that put `blocks[group]` at `index` of each group's table."""
    return [word for group, ids in enumerate(blocks) for word in (slot, group, index, len(ids), *ids)]
