"""Tensor types by GGUF's numbers: what they are called, how many bytes a row takes, which of them this project reads."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from camshaft.errors import ModelError


class DType(NamedTuple):
    """`block` elements are stored in `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int


F32, F16, BF16 = 0, 1, 30

# Numbers and sizes: ggml's public type table (ggml.h, ggml-common.h).
SUPPORTED: dict[int, DType] = {
    F32: DType("F32", 1, 4),
    F16: DType("F16", 1, 2),
    2: DType("Q4_0", 32, 18),
    3: DType("Q4_1", 32, 20),
    6: DType("Q5_0", 32, 22),
    7: DType("Q5_1", 32, 24),
    8: DType("Q8_0", 32, 34),
    10: DType("Q2_K", 256, 84),
    11: DType("Q3_K", 256, 110),
    12: DType("Q4_K", 256, 144),
    13: DType("Q5_K", 256, 176),
    14: DType("Q6_K", 256, 210),
    20: DType("IQ4_NL", 32, 18),
    BF16: DType("BF16", 1, 2),
}

# Known by name only, so that a refusal can say what was found.
_OTHERS: dict[int, str] = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
    41: "Q1_0",
}  # fmt: skip

# Packed into 8-bit groups at load, which takes more memory than the file says.
WIDENED = frozenset({10, 11, 20})

_FLOATS = {F32: "<f4", F16: "<f2", BF16: "<u2"}


def type_name(number: int) -> str:
    """`Q4_K`, or `type 99` for a number that nobody has given out."""
    known = SUPPORTED.get(number)
    return known.name if known else _OTHERS.get(number, f"type {number}")


def supported_names() -> str:
    """The types that are read, for messages."""
    return " ".join(t.name for t in SUPPORTED.values())


def row_bytes(number: int, cols: int) -> int:
    """Bytes of `cols` elements of a supported type. Raises ValueError where a row would end inside a block."""
    kind = SUPPORTED[number]
    if cols % kind.block:
        raise ValueError(f"rows of {kind.name} come in multiples of {kind.block} elements, not {cols}")
    return cols // kind.block * kind.block_bytes


def to_float32(number: int, data: NDArray[np.uint8], what: str) -> NDArray[np.float32]:
    """The values of an F32, F16 or BF16 tensor as a new flat float32 array. Raises ModelError for any other type."""
    if number not in _FLOATS:
        raise ModelError(f"{what} has type {type_name(number)}; norms and biases are read as F32, F16 or BF16 only")
    # Bytes are copied first: a tensor in a file need not be aligned for its type.
    values = np.frombuffer(data.tobytes(), dtype=_FLOATS[number])
    if number == BF16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)
