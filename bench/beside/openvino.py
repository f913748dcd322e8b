"""OpenVINO GenAI from PyPI, in an environment of its own: its continuous-batching pipeline, which reads the GGUF file itself.

It computes in float32 where a CPU has no bfloat16 arithmetic, and keeps its cache as int8 unless told otherwise. What suits prefill, decode
and batches best differs by machine, so the candidates below are timed on it (beside/tuning.py), and each kind of case gets its best.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from beside import tuning
from beside.shell import AbsentError, environment, last_json, sh
from beside.tuning import Case

PACKAGES = ("openvino-genai",)  # brings openvino and openvino-tokenizers
CHILD = Path(__file__).with_name("openvino_child.py")
SCHEDULER = {"cache_size": 2, "max_num_batched_tokens": 4096}  # GB, and a batch's whole prompts in one step


class Candidate(NamedTuple):
    """A type of file, and properties of the compiled model."""

    file: str
    properties: Mapping[str, Any]
    scheduler: Mapping[str, Any] = SCHEDULER


CANDIDATES: Mapping[str, Candidate] = {
    "Q4_0": Candidate("Q4_0", {}),
    "Q4_0, steps of 512": Candidate("Q4_0", {}, {"cache_size": 2, "max_num_batched_tokens": 512}),
    "Q4_0, throughput hint": Candidate("Q4_0", {"PERFORMANCE_HINT": "THROUGHPUT"}),
    "Q4_0, f16 cache": Candidate("Q4_0", {"KV_CACHE_PRECISION": "f16"}),
    "Q8_0": Candidate("Q8_0", {}),
}


class OpenVino(NamedTuple):
    """`chosen`: the candidate of each kind of case."""

    python: Path
    threads: int
    files: Mapping[str, Path]
    chosen: Mapping[str, str] = {}

    def version(self) -> str:
        version = sh(self.python, "-c", "import openvino_genai as genai; print(genai.__version__)").strip()
        return f"{version} ({', '.join(f'{kind}: {name}' for kind, name in self.chosen.items())})"

    def seconds(self, cases: Mapping[str, Case]) -> dict[str, float]:
        """Seconds of each case, each kind with its settings: a process for each setting."""
        found: dict[str, float] = {}
        for name in dict.fromkeys(self.chosen.values()):
            fitting = {label: case for label, case in cases.items() if self.chosen[tuning.kind_of(case)] == name}
            found |= self.measure(name, fitting)
        return found

    def measure(self, candidate: str, cases: Mapping[str, Case]) -> dict[str, float]:
        file, properties, scheduler = CANDIDATES[candidate]
        if file not in self.files:
            raise AbsentError(f"there is no {file} file")
        asked = {"model": str(self.files[file]), "threads": self.threads, "properties": properties, "scheduler": scheduler, "cases": cases}
        return dict(last_json(sh(self.python, "-P", CHILD, json.dumps(asked)))["seconds"])


def install(work: Path, threads: int, files: Mapping[str, Path]) -> OpenVino:
    """Not tuned yet. Raises AbsentError where it cannot be installed."""
    return OpenVino(environment(work / "env", *PACKAGES), threads, files)


def tuned(peer: OpenVino) -> dict[str, str]:
    """The best candidate for each kind of case."""
    return tuning.choose(
        [name for name, each in CANDIDATES.items() if each.file in peer.files], lambda name: peer.measure(name, tuning.KINDS)
    )
