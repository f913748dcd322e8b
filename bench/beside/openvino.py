"""OpenVINO GenAI from PyPI, in an environment of its own: its continuous-batching pipeline, which reads the GGUF file itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beside.shell import environment, last_json, sh

PACKAGES = ("openvino-genai",)  # brings openvino and openvino-tokenizers
CHILD = Path(__file__).with_name("openvino_child.py")
PRECISION: Mapping[str, Any] = {}
SCHEDULER: Mapping[str, Any] = {"cache_size": 2, "max_num_batched_tokens": 512}


class OpenVino(NamedTuple):
    python: Path
    threads: int

    def version(self) -> str:
        return sh(self.python, "-c", "import openvino_genai as genai; print(genai.__version__)").strip()

    def seconds(self, model: Path, cases: Mapping[str, tuple[int, int, int]]) -> dict[str, float]:
        """Seconds of each case: n requests of so many prompt tokens that each generate exactly so many."""
        asked = {"model": str(model), "threads": self.threads, "precision": PRECISION, "scheduler": SCHEDULER, "cases": cases}
        return dict(last_json(sh(self.python, "-P", CHILD, json.dumps(asked)))["seconds"])


def install(work: Path, threads: int) -> OpenVino:
    """Raises AbsentError where it cannot be installed."""
    return OpenVino(environment(work / "env", *PACKAGES), threads)
