"""What tasks work with: model files, and peers that are installed and tuned. What cannot be had here is a reason instead."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from beside import llama_cpp, openvino, transformers, tuning
from beside.llama_cpp import LlamaCpp
from beside.openvino import OpenVino
from beside.shell import AbsentError
from beside.transformers import Transformers
from camshaft.bench.machine import fingerprint
from camshaft.errors import CamshaftError
from camshaft.formats import source

LLAMA, OPENVINO, TRANSFORMERS = "llama.cpp", "openvino", "transformers"
PEERS = (LLAMA, OPENVINO, TRANSFORMERS)
MADE = ("Q4_0", "Q8_0", "BF16")  # from the file as shipped, by llama.cpp's quantiser

T = TypeVar("T")


class Wanted(NamedTuple):
    """`tune`: find the peers' settings anew. `transformers_python` is of an environment that has it already."""

    peers: tuple[str, ...]
    threads: int
    work: Path
    avx512: bool
    tune: bool = False
    text: Path | None = None
    transformers_python: Path | None = None


class Setup(NamedTuple):
    """`files` are the model files by type; `absent` says why a peer or a file is not here."""

    threads: int
    files: Mapping[str, Path]
    llama: LlamaCpp | None = None
    llama_avx2: LlamaCpp | None = None
    openvino: OpenVino | None = None
    transformers: Transformers | None = None
    text: Path | None = None
    absent: Mapping[str, str] = {}

    def file(self, kind: str) -> Path:
        """Raises AbsentError where there is none."""
        if kind not in self.files:
            raise AbsentError(self.absent.get(kind, f"there is no {kind} file"))
        return self.files[kind]

    def versions(self) -> dict[str, str]:
        """Of each peer that is here, with its settings."""
        peers = {LLAMA: self.llama, OPENVINO: self.openvino, TRANSFORMERS: self.transformers}
        return {name: peer.version() for name, peer in peers.items() if peer is not None}


def install(wanted: Wanted) -> Setup:
    """Everything that was asked for, made at the first use."""
    absent = {peer: "not asked for" for peer in PEERS if peer not in wanted.peers}

    def attempt(what: str, make: Callable[[], T]) -> T | None:
        if what in absent:
            return None
        try:
            return make()
        except (AbsentError, CamshaftError) as error:
            absent[what] = str(error)
            return None

    files = {"Q4_1": source.resolve("smollm2-135m")}
    gemma = attempt("Gemma", lambda: source.resolve("gemma3-270m"))
    if gemma is not None:
        files["Gemma"] = gemma
    llama = attempt(LLAMA, lambda: _llama(wanted, files))
    avx2 = attempt(LLAMA, lambda: _avx2(wanted, llama)) if llama is not None else None
    for kind in MADE:
        if kind not in files:
            absent[kind] = f"llama.cpp's quantiser makes this file, and it is absent: {absent[LLAMA]}"
    vino = attempt(OPENVINO, lambda: _openvino(wanted, files))
    torch = attempt(TRANSFORMERS, lambda: transformers.install(wanted.work / TRANSFORMERS, wanted.threads, wanted.transformers_python))
    return Setup(wanted.threads, files, llama, avx2, vino, torch, wanted.text, absent)


def _llama(wanted: Wanted, files: dict[str, Path]) -> LlamaCpp:
    """Adds the files that it makes."""
    peer = llama_cpp.install(wanted.work / LLAMA, wanted.threads)
    files |= {kind: peer.quantised(files["Q4_1"], kind, wanted.work) for kind in MADE}
    return peer._replace(chosen=_settings(wanted, LLAMA, llama_cpp.CANDIDATES, lambda: llama_cpp.tuned(peer, files["Q4_0"])))


def _avx2(wanted: Wanted, native: LlamaCpp) -> LlamaCpp:
    """A build for AVX2 alone, where the machine has more than that."""
    if not wanted.avx512:
        return native
    return llama_cpp.install(wanted.work / LLAMA, wanted.threads, llama_cpp.AVX2_ONLY)._replace(chosen=native.chosen)


def _openvino(wanted: Wanted, files: Mapping[str, Path]) -> OpenVino:
    peer = openvino.install(wanted.work / OPENVINO, wanted.threads, files)
    return peer._replace(chosen=_settings(wanted, OPENVINO, openvino.CANDIDATES, lambda: openvino.tuned(peer)))


def _settings(wanted: Wanted, peer: str, candidates: Mapping[str, object], tune: Callable[[], dict[str, str]]) -> dict[str, str]:
    """The best settings of a peer for each kind of case, found at the first use."""
    about = {"cpu": fingerprint().cpu, "threads": wanted.threads, "candidates": list(candidates)}
    chosen = tuning.remembered(wanted.work / peer / "tuned.json", about, tune, wanted.tune)
    sys.stderr.write(f"{peer}: {chosen}\n")
    return chosen
