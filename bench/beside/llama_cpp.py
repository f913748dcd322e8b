"""llama.cpp's own tools, built from the sdist of llama-cpp-python with all that its build finds on this CPU.

Its best file on a CPU is Q4_0, which it repacks at load; made by its own quantiser from the file as shipped. Which flash attention and
micro-batch suit it best is found on the machine (beside/tuning.py). llama-bench does not sample, llama-batched-bench does not detokenise.
"""

from __future__ import annotations

import json
import statistics
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from beside import tuning
from beside.shell import INSTALL_S, AbsentError, last_json, sh

SDIST = "llama-cpp-python"
TOOLS = ("llama-bench", "llama-batched-bench", "llama-quantize")
NATIVE = ("-DGGML_NATIVE=ON",)
AVX2_ONLY = ("-DGGML_NATIVE=OFF", "-DGGML_SSE42=ON", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON")


CANDIDATES: Mapping[str, tuple[str, ...]] = {
    "-fa on": ("-fa", "on"),
    "-fa off": ("-fa", "off"),
    "-fa on -ub 128": ("-fa", "on", "-ub", "128"),
    "-fa off -ub 128": ("-fa", "off", "-ub", "128"),
}


class LlamaCpp(NamedTuple):
    """A folder of built tools. `chosen`: the candidate of each kind of case."""

    bin: Path
    threads: int
    chosen: Mapping[str, str] = dict.fromkeys(tuning.KINDS, "-fa on")

    def version(self) -> str:
        archives = sorted(archive.name for archive in self.bin.parents[1].glob("llama_cpp_python-*.tar.gz"))
        version = archives[-1].removesuffix(".tar.gz").replace("_", "-") if archives else "unknown"
        return f"{version} ({', '.join(f'{kind}: {name}' for kind, name in self.chosen.items())})"

    def quantised(self, source: Path, kind: str, folder: Path) -> Path:
        """`source` as another type of file, made once by llama.cpp's own quantiser."""
        out = folder / f"{source.stem}.as-{kind}.gguf"
        if not out.exists():
            part = out.with_suffix(".part")
            sh(self.bin / "llama-quantize", "--allow-requantize", source, part, kind)
            part.rename(out)
        return out

    def speeds(self, model: Path, prefill: int, gen: int) -> dict[str, float]:
        """tok/s of a prompt of `prefill` tokens, and of `gen` tokens generated one by one from an empty context."""
        return {f"prefill {prefill}": self.prefill(model, prefill), "decode": self._speed("decode", model, 0, gen)}

    def prefill(self, model: Path, n: int) -> float:
        """tok/s of a prompt of `n` tokens."""
        return self._speed("prefill", model, n, 0)

    def _speed(self, kind: str, model: Path, prompt: int, gen: int) -> float:
        """The median of three after a warm-up of their length."""
        asked = ("-t", str(self.threads), "-p", str(prompt), "-n", str(gen), "-r", "3", "-o", "json")
        (row,) = json.loads(sh(self.bin / "llama-bench", "-m", model, *asked, *CANDIDATES[self.chosen[kind]]))
        return float(statistics.median(row["samples_ts"]))

    def batch(self, model: Path, n: int, prompt: int, gen: int) -> float:
        """Generated tok/s of n sequences over the whole time, prefill included."""
        asked = ("-t", str(self.threads), "-c", str(n * (prompt + gen)), "-npp", str(prompt), "-ntg", str(gen), "-npl", str(n))
        settings = ("--output-format", "jsonl", *CANDIDATES[self.chosen["batch"]])
        row = last_json(sh(self.bin / "llama-batched-bench", "-m", model, *asked, *settings))
        return float(n * gen / (row["t_pp"] + row["t_tg"]))


def tuned(peer: LlamaCpp, model: Path) -> dict[str, str]:
    """The best candidate for each kind of case."""
    n, prompt, gen = tuning.KINDS["batch"]

    def seconds(name: str) -> dict[str, float]:
        this = peer._replace(chosen=dict.fromkeys(tuning.KINDS, name))
        speeds = this.speeds(model, 512, 48)
        return {"prefill": 1 / speeds["prefill 512"], "decode": 1 / speeds["decode"], "batch": 1 / this.batch(model, n, prompt, gen)}

    return tuning.choose(list(CANDIDATES), seconds)


def install(work: Path, threads: int, flags: tuple[str, ...] = NATIVE) -> LlamaCpp:
    """The tools, built at the first use (compiler needed, ten minutes). Raises AbsentError where they cannot be built."""
    build = work / ("build" if flags == NATIVE else "build-avx2")
    if not all((build / "bin" / tool).exists() for tool in TOOLS):
        source = _source(work)
        sh("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *flags, "-DLLAMA_CURL=OFF", "-DLLAMA_BUILD_SERVER=OFF")
        sh("cmake", "--build", build, "-j2", "--target", *TOOLS, limit_s=INSTALL_S)
    return LlamaCpp(build / "bin", threads)


def _source(work: Path) -> Path:
    work.mkdir(parents=True, exist_ok=True)
    if not any(work.glob("llama_cpp_python-*.tar.gz")):
        sh(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", SDIST, SDIST, "-d", work, limit_s=INSTALL_S)
    archive = max(work.glob("llama_cpp_python-*.tar.gz"))
    folder = work / archive.name.removesuffix(".tar.gz") / "vendor" / "llama.cpp"
    if not folder.exists():
        with tarfile.open(archive) as tar:
            tar.extractall(work, filter="data")
    if not folder.exists():
        raise AbsentError(f"{archive.name} holds no llama.cpp")
    return folder
