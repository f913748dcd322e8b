"""Camshaft beside llama.cpp on this machine, in interleaved rounds: decode, prefill, batches. Prints a Markdown table of medians.

    python bench/llama_cpp.py [--rounds 5] [--threads 2] [--work DIR] [--out bench/results/NAME.json]

llama.cpp is built from the sdist of llama-cpp-python (compiler and cmake needed, ten minutes once) with its defaults for this CPU. It gets
its best file: Q4_0, requantised from the very file that Camshaft serves by llama.cpp's own tool. Camshaft gets the file as shipped. Both
use the same lengths and threads. llama-bench does not sample; Camshaft's figures include scheduling, sampling and detokenising.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from camshaft.bench.machine import fingerprint
from camshaft.formats import source

SDIST = "llama-cpp-python"
BATCHES = ((8, 128, 128), (32, 128, 128))
TOOLS = ("llama-bench", "llama-batched-bench", "llama-quantize")


def sh(*args: str | Path, cwd: Path | None = None, timeout: float = 3600) -> str:
    """Runs a command to its end and returns what it printed; its own words are shown if it fails."""
    done = subprocess.run([str(a) for a in args], cwd=cwd, capture_output=True, text=True, timeout=timeout)
    if done.returncode:
        raise SystemExit(f"{args[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def build_peer(work: Path) -> Path:
    """The folder of llama.cpp's tools, built once."""
    tools = work / "build" / "bin"
    if all((tools / t).exists() for t in TOOLS):
        return tools
    work.mkdir(parents=True, exist_ok=True)
    sh(sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", SDIST, SDIST, "-d", work)
    (sdist,) = work.glob("llama_cpp_python-*.tar.gz")
    with tarfile.open(sdist) as tar:
        tar.extractall(work, filter="data")
    src = next(work.glob("llama_cpp_python-*/vendor/llama.cpp"))
    sh(
        "cmake",
        "-S",
        src,
        "-B",
        work / "build",
        "-DCMAKE_BUILD_TYPE=Release",
        "-DGGML_NATIVE=ON",
        "-DLLAMA_CURL=OFF",
        "-DLLAMA_BUILD_SERVER=OFF",
    )
    sh("cmake", "--build", work / "build", "-j2", "--target", *TOOLS)
    return tools


def q4_0(tools: Path, shipped: Path, work: Path) -> Path:
    """The shipped model as Q4_0, llama.cpp's fastest form on CPUs."""
    out = work / (shipped.stem + ".as-q4_0.gguf")
    if not out.exists():
        sh(tools / "llama-quantize", "--allow-requantize", shipped, out, "Q4_0")
    return out


def peer_round(tools: Path, model: Path, threads: int) -> dict[str, float]:
    """One round of llama.cpp: tok/s by figure."""
    bench = json.loads(sh(tools / "llama-bench", "-m", model, "-t", str(threads), "-p", "512", "-n", "128", "-r", "1", "-o", "json"))
    figures = {"decode, batch 1": 0.0, "prefill 512": 0.0}
    for row in bench:
        figures["prefill 512" if row["n_prompt"] else "decode, batch 1"] = row["avg_ts"]
    for n, prompt, gen in BATCHES:
        line = sh(
            tools / "llama-batched-bench", "-m", model, "-t", str(threads), "-c", str(n * (prompt + gen)),
            "-npp", str(prompt), "-ntg", str(gen), "-npl", str(n), "--output-format", "jsonl",
        )  # fmt: skip
        row = json.loads(next(text for text in line.splitlines() if text.startswith("{")))
        figures[f"{n} x ({prompt} + {gen})"] = n * gen / (row["t_pp"] + row["t_tg"])
    return figures


def our_round(model: Path, threads: int) -> dict[str, float]:
    """One round of Camshaft in a process of its own, so that neither side inherits the other's warm memory."""
    code = (
        "import sys, msgspec\nfrom camshaft.bench.engine import measure\nfrom camshaft.config import EngineConfig\n"
        f"r = measure({str(model)!r}, EngineConfig(threads={threads}), batches={BATCHES!r}, rounds=1)\n"
        "sys.stdout.buffer.write(msgspec.json.encode(r))"
    )
    report = json.loads(sh(sys.executable, "-c", code))
    figures = {"decode, batch 1": report["decode"]["tok_s"], "prefill 512": report["prefill"]["tok_s"]}
    for batch in report["batch"]:
        figures[f"{batch['n']} x ({batch['prompt']} + {batch['gen']})"] = batch["gen_tok_s"]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, default=Path.home() / ".cache" / "camshaft" / "peers" / "llama.cpp")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    shipped = source.resolve("smollm2-135m")
    tools = build_peer(args.work)
    best = q4_0(tools, shipped, args.work)
    sides: dict[str, Callable[[], dict[str, float]]] = {
        "camshaft, Q4_1 as shipped": lambda: our_round(shipped, args.threads),
        "llama.cpp, Q4_0": lambda: peer_round(tools, best, args.threads),
        "llama.cpp, Q4_1 as shipped": lambda: peer_round(tools, shipped, args.threads),
    }
    seen: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for number in range(args.rounds):
        for side, run in sides.items():
            seen[side].append(run())
            print(f"round {number + 1}: {side}: {seen[side][-1]}", file=sys.stderr, flush=True)
    ours = next(iter(sides))
    print(
        f"{fingerprint()}\n\n| tok/s, medians of {args.rounds} rounds | "
        + " | ".join(sides)
        + " | over llama.cpp's best |\n|---|"
        + "---|" * (len(sides) + 1)
    )
    for figure in seen[ours][0]:
        medians = {side: statistics.median(r[figure] for r in rounds) for side, rounds in seen.items()}
        best_peer = max(value for side, value in medians.items() if side != ours)
        spread = {side: (min(r[figure] for r in rounds), max(r[figure] for r in rounds)) for side, rounds in seen.items()}
        cells = (f"{medians[s]:.0f} ({spread[s][0]:.0f}–{spread[s][1]:.0f})" for s in sides)
        print(f"| {figure} | " + " | ".join(cells) + f" | {medians[ours] / best_peer:.2f} x |")
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_bytes(msgspec.json.format(msgspec.json.encode({"machine": fingerprint(), "rounds": seen})))


if __name__ == "__main__":
    main()
