"""llama.cpp's own tools, built from the sdist of llama-cpp-python with all that its build finds on this CPU.

Settings, each found best or level on a 2-core AVX2 machine (bench/LOG.md): Q4_0 weights, repacked at load; flash attention as it chooses;
micro-batches of 512. llama-bench does not sample, llama-batched-bench does not detokenise, and neither serves.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import NamedTuple

from beside.shell import INSTALL_S, AbsentError, last_json, sh

SDIST = "llama-cpp-python"
TOOLS = ("llama-bench", "llama-batched-bench", "llama-quantize")
NATIVE = ("-DGGML_NATIVE=ON",)
AVX2_ONLY = ("-DGGML_NATIVE=OFF", "-DGGML_SSE42=ON", "-DGGML_AVX=ON", "-DGGML_AVX2=ON", "-DGGML_FMA=ON", "-DGGML_F16C=ON", "-DGGML_BMI2=ON")


class LlamaCpp(NamedTuple):
    """A folder of built tools."""

    bin: Path
    threads: int

    def version(self) -> str:
        for line in sh(self.bin / "llama-bench", "--version").splitlines():
            if "version" in line:
                return line.strip()
        return "unknown"

    def quantised(self, source: Path, kind: str, folder: Path) -> Path:
        """`source` as another type of file, made once by llama.cpp's own quantiser."""
        out = folder / f"{source.stem}.as-{kind}.gguf"
        if not out.exists():
            part = out.with_suffix(".part")
            sh(self.bin / "llama-quantize", "--allow-requantize", source, part, kind)
            part.rename(out)
        return out

    def speeds(self, model: Path, prefill: int, gen: int) -> dict[str, float]:
        """tok/s of a prompt of `prefill` tokens, and of `gen` tokens generated one by one from an empty context; each after a warm-up."""
        asked = ("-t", str(self.threads), "-p", str(prefill), "-n", str(gen), "-r", "1", "-o", "json")
        rows = json.loads(sh(self.bin / "llama-bench", "-m", model, *asked))
        return {f"prefill {prefill}" if row["n_prompt"] else "decode": row["avg_ts"] for row in rows}

    def batch(self, model: Path, n: int, prompt: int, gen: int) -> float:
        """Generated tok/s of n sequences over the whole time, prefill included."""
        asked = ("-t", str(self.threads), "-c", str(n * (prompt + gen)), "-npp", str(prompt), "-ntg", str(gen), "-npl", str(n))
        row = last_json(sh(self.bin / "llama-batched-bench", "-m", model, *asked, "--output-format", "jsonl"))
        return float(n * gen / (row["t_pp"] + row["t_tg"]))


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
