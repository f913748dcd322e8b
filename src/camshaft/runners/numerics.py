"""The numerics id: what two runs must have in common for their logits to be equal bit for bit.

It is shown to clients as system_fingerprint, and a stream moves only between replicas with equal ids.
"""

from __future__ import annotations

import hashlib

from camshaft.config import EngineConfig

# Raise it with every change, native or in the graphs and their lowering, that may alter one bit of any logit.
KERNEL_VERSION = 2


def numerics_id(model_hash: str, config: EngineConfig, isa: str) -> str:
    """16 hex digits. Settings that only decide when and where something is computed (batch, blocks, threads) have no place in it.

    The packed form follows from the file and `quantize`. Instruction sets give equal bits today; the id names theirs all the same, so
    that the promise does not hang on that.
    """
    parts = ("camshaft", str(KERNEL_VERSION), model_hash, config.quantize, config.compute, config.kv_dtype, isa)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
