"""Hugging Face transformers over torch for CPUs, in an environment of its own: the file dequantised to float32, static batches.

float32 since it is the faster on a CPU without bfloat16 arithmetic; on one that has it, bfloat16.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from beside.shell import environment, last_json, sh

PACKAGES = ("torch==2.13.0", "transformers", "gguf", "accelerate")
CHILD = Path(__file__).with_name("transformers_child.py")


class Transformers(NamedTuple):
    python: Path
    threads: int
    dtype: str

    def version(self) -> str:
        code = "import torch, transformers; print(transformers.__version__, 'torch', torch.__version__)"
        return f"{sh(self.python, '-c', code).strip()}, {self.dtype}"

    def seconds(self, model: Path, cases: Mapping[str, tuple[int, int, int]]) -> dict[str, float]:
        """Seconds of each case: n requests of so many prompt tokens that each generate exactly so many."""
        asked = {"model": str(model), "threads": self.threads, "dtype": self.dtype, "cases": cases}
        return dict(last_json(sh(self.python, "-P", CHILD, json.dumps(asked)))["seconds"])


def install(work: Path, threads: int, python: Path | None) -> Transformers:
    """`python` is that of an environment which has both already. Raises AbsentError where they cannot be installed."""
    flags = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []
    dtype = "bfloat16" if "avx512_bf16" in flags or "amx_bf16" in flags else "float32"
    return Transformers(python or environment(work / "env", *PACKAGES), threads, dtype)
