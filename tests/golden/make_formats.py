"""Makes data/formats.bin: one row of 256 weights in each GGUF tensor type, beside what the `gguf` package makes of it.

The native formats_test reads it, so that the tests need no such package. Run by hand, where `gguf` is installed:
    python tests/golden/make_formats.py
The file is a list of records: uint32 type, cols, n bytes, 0; the row's bytes; float32[cols].
"""

import struct
from pathlib import Path

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type
from gguf.quants import dequantize, quantize

COLS = 256
# Where the half-precision scales lie in a block of a type that the package can read but not write.
SCALES_AT = {Type.Q2_K: (80, 82), Type.Q3_K: (108,), Type.Q4_K: (0, 2), Type.Q5_K: (0, 2), Type.Q6_K: (208,), Type.IQ4_NL: (0,)}
WRITTEN = (Type.F32, Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1)


def random_blocks(kind: Type, random: np.random.Generator) -> np.ndarray:
    """Blocks of random bytes, so that every bit of every field counts, with scales of a weight's usual size."""
    weights, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (COLS // weights, size), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        scales = random.uniform(0.0005, 0.004, (len(blocks), 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(-1)


def record(kind: Type, random: np.random.Generator) -> bytes:
    """One record of the file."""
    if kind in WRITTEN:
        row = quantize(random.normal(0, 0.05, (1, COLS)).astype(np.float32), kind).reshape(-1).view(np.uint8)
    else:
        row = random_blocks(kind, random)
    weights = dequantize(row.view(np.float32) if kind == Type.F32 else row, kind).astype(np.float32).reshape(-1)
    assert weights.size == COLS, kind
    assert np.isfinite(weights).all(), kind
    return struct.pack("<4I", kind, COLS, row.size, 0) + row.tobytes() + weights.tobytes()


def main() -> None:
    """Writes the file."""
    random = np.random.default_rng(20)
    kinds = sorted((*WRITTEN, *SCALES_AT))
    (Path(__file__).parent / "data" / "formats.bin").write_bytes(b"".join(record(kind, random) for kind in kinds))


if __name__ == "__main__":
    main()
