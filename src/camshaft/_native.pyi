"""The native runtime as Python sees it. Built from native/bind; this stub is the contract.

Arrays are C-contiguous numpy arrays; `run` releases the GIL for its whole computation.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from camshaft.types import Mask, SamplingParams, StepPlan, StepResult

__version__: str

def available_isas() -> list[str]: ...
def usable_cores() -> int: ...
def known_file_type(type: int) -> bool: ...
def form_name(type: int) -> str: ...
def packed_bytes(form: str, rows: int, cols: int) -> int:
    """Raises ValueError for a form that is not known or a matrix without elements."""

def packing_id() -> int:
    """Differs between builds that pack any matrix into other bytes."""

def checksum(data: Buffer) -> int:
    """XXH64 of bytes; the GIL is released."""

def is_widened(type: int) -> bool: ...
def file_row_bytes(type: int, cols: int) -> int: ...
def kv_layer_bytes(dtype: str, block_size: int, n_kv_heads: int, head_dim: int) -> int:
    """Bytes of one layer of one block of the KV cache, K and V."""

def roofline(threads: int, isa: str, seconds: float) -> tuple[float, float]:
    """(DRAM read GB/s: best of 10 sweeps by all threads over 1 GiB, int8 GOP/s: a dot loop in registers)."""

def skip_strings(data: Buffer, at: int, count: int, longest: int) -> tuple[int, int]:
    """Walks a GGUF string array from byte `at`: how many strings lie in `data` and are not too long, and the byte after the last of them."""

def read_strings(data: Buffer, count: int) -> list[str]:
    """The strings of a GGUF array; fewer than `count` where one is not UTF-8 or lies beyond the end."""

class MappedFile:
    """A file as read-only memory, by its descriptor, which may be closed. Raises ValueError for what is empty or no file."""

    def __init__(self, fd: int) -> None: ...
    def size(self) -> int: ...
    def intact(self, stretches: Sequence[tuple[int, int, int]], threads: int) -> bool:
        """Whether every (offset, bytes, checksum) lies in the file and still has its checksum. Reads them all, without the GIL."""

class Part(NamedTuple):
    """One matrix of a linear node: outputs go to buffer `dst` from column `col` on. `bias` is a vector id or -1."""

    weight: int
    bias: int
    dst: int
    col: int

class Builder:
    """Collects weights, vectors, buffers and nodes in order; `build` freezes them into a Program. Ids are small ints of this builder."""

    def __init__(
        self, *, isa: str, threads: int, compute: str, max_tokens: int, max_slots: int, vocab_size: int, pin_threads: bool = False
    ) -> None: ...
    def weight(
        self, type: int, rows: int, cols: int, data: NDArray[np.uint8], row_order: NDArray[np.int32] | None = None, form: str = ""
    ) -> int:
        """Packs a matrix from file bytes, by all threads. `form` overrides the form that the type has: q8 or q4 quantise a float matrix."""
    def mapped_weight(self, file: MappedFile, offset: int, form: str, rows: int, cols: int) -> int:
        """A matrix that was packed before and lies in a file. Raises ValueError where it does not."""
    def weight_bytes(self) -> int:
        """Packed bytes so far."""
    def vector(self, data: NDArray[np.float32]) -> int: ...
    def rope_table(self, inv_freq: NDArray[np.float64], max_positions: int) -> int:
        """cos and sin of position * inv_freq[i], computed in double, stored as float32 [max_positions, half]."""
    def buffer(self, width: int) -> int:
        """float32 [max_tokens, width]."""
    def kv_cache(
        self, *, block_size: int, n_blocks: int, dtype: str, n_layers_per_block: int, n_groups: int, n_kv_heads: int, head_dim: int
    ) -> None:
        """The pool: n_blocks blocks, each n_layers_per_block layers of K and V. Zero pages until written. Block 0 is never read for a visible token."""
    # Nodes, in order of execution. Each works on all tokens of the step until take_rows, then on the taken rows.
    def embed(self, dst: int, weight: int, scale: float) -> None: ...
    def rms_norm(self, dst: int, src: int, weight: int, eps: float) -> None: ...
    def head_norm(self, buf: int, col: int, n_heads: int, head_dim: int, weight: int, eps: float) -> None:
        """rms_norm of each head in place (Q and K norm)."""
    def linear(self, src: int, parts: Sequence[Part], accumulate: bool) -> None:
        """One parallel loop over the tiles of all parts; src is quantised once. `accumulate` adds to dst (the residual)."""
    def rope(self, buf: int, col: int, n_heads: int, head_dim: int, table: int) -> None: ...
    def attention(
        self,
        dst: int,
        q: int,
        q_col: int,
        kv: int,
        k_col: int,
        v_col: int,
        *,
        group: int,
        layer: int,
        n_heads: int,
        window: int,
        scale: float,
        softcap: float,
    ) -> None:
        """Writes the step's K and V into the pool (buffer `kv`, columns k_col and v_col), then attends. `layer` is the index within its group."""
    def silu_mul(self, dst: int, src: int, gate_col: int, up_col: int, n: int) -> None: ...
    def gelu_mul(self, dst: int, src: int, gate_col: int, up_col: int, n: int) -> None: ...
    def add(self, dst: int, a: int, b: int) -> None: ...
    def take_rows(self, dst: int, src: int) -> None:
        """Keeps the rows that are sampled or scored. Nodes after it see only those."""
    def head(self, src: int, weight: int, softcap: float) -> None:
        """Logits of the taken rows, in slices; each slice is sampled or scored before the next. The last node."""
    def build(self) -> Program: ...

class Program:
    """A frozen network with its KV pool and its slots' sampling state."""

    def open(
        self, slot: int, params: SamplingParams, choice: int, prompt_ids: NDArray[np.int32], output_ids: NDArray[np.int32]
    ) -> None: ...
    def release(self, slot: int) -> None: ...
    def step(self, plan: StepPlan, masks: dict[int, Mask]) -> StepResult:
        """Computes a plan. `step_s` is the time without the GIL. Raises ValueError for an inconsistent plan before touching anything."""
    def run(
        self,
        ids: NDArray[np.int32],  # [T]
        rows: NDArray[np.int32],  # [R, 5]: slot, start, n_new, n_sample, score
        patches: NDArray[np.int32],  # flat: slot, group, index, n, then n block ids; repeated
        copies: NDArray[np.int32],  # [C, 2]: src, dst
        masks: dict[int, Buffer],
    ) -> list[tuple[list[int], list[tuple[int, float, list[tuple[int, float]]]], list[tuple[int, float, list[tuple[int, float]]]]]]:
        """The same for batches made by hand, which a plan could not be. Per row: sampled ids, their logprobs when asked, scores when asked. Raises ValueError for an inconsistent batch before touching anything."""
    def keep_logits(self, on: bool) -> None: ...
    def last_logits(self) -> NDArray[np.float32]:
        """[n taken rows, vocab] of the last run, for tests; kept only while keep_logits is on."""
    def packed(self, weight: int) -> NDArray[np.uint8]:
        """The packed bytes of a weight of the builder: a read-only view that keeps the program alive."""
    def touch(self) -> None:
        """Faults in the KV pool, so that later growth of resident memory is somebody else's."""
    def node_times(self) -> list[tuple[str, float]]:
        """Seconds spent per kind of node since the last call."""
