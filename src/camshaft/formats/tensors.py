"""Tensors: as a file lists them, and as the rest of the project asks for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray


class TensorInfo(NamedTuple):
    """One tensor of a file. `type` is GGUF's number, `shape` has the outermost dimension first, `offset` is from the start of the file."""

    name: str
    type: int
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


class TensorSource(Protocol):
    """Whatever holds tensors under the names of its own kind of file."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    def data(self, info: TensorInfo) -> NDArray[np.uint8]:
        """The tensor's bytes: a read-only view of the file."""
        ...

    def rest(self) -> None:
        """Nothing of the file will be read for a while: its pages need not stay in memory."""
        ...


class Tensor(NamedTuple):
    """A matrix [rows = outputs, cols = inputs] as the file encodes it. Output row i is file row `row_order[i]`, or i where that is None."""

    name: str
    type: int
    rows: int
    cols: int
    data: NDArray[np.uint8]
    row_order: NDArray[np.int32] | None
