"""Models from Hugging Face: `hf://owner/repo` or `hf://owner/repo:file.gguf`. Lands in Hugging Face's own cache.

The client library runs in a child process (`hub_worker`): it retries for minutes where there is no network, and the errors it raises
then belong to a transport library that differs between its versions. A child has a deadline, and its last words are the cause.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from camshaft.errors import DownloadError
from camshaft.formats import child
from camshaft.formats.download import Progress, silent
from camshaft.formats.hf import TEXT_FILES

SCHEME = "hf://"
_REFERENCE = re.compile(r"([\w.-]+)/([\w.-]+)(?::([\w./ -]+))?")
_NO_NETWORK = (
    "ConnectError", "ConnectionError", "Name or service not known", "name resolution", "Timeout", "OfflineModeIsEnabled",
    "ProxyError", "Network is unreachable", "Connection refused",
)  # fmt: skip
_LIMITS = child.Limits(stall_s=120.0)


class Reference(Struct, frozen=True):
    """A repository on the hub and, where one is meant, a file in it."""

    repo: str
    file: str | None = None


class Watch(Struct, frozen=True, tag="watch"):
    """The worker's first word: where the bytes will grow, and how many there will be."""

    folder: str
    n_bytes: int


class Done(Struct, frozen=True, tag="done"):
    """The worker's last word: the file or folder that was asked for."""

    path: str


def parse(name: str) -> Reference:
    """`hf://owner/repo[:file]` taken apart. Raises DownloadError for anything else."""
    match = _REFERENCE.fullmatch(name.removeprefix(SCHEME))
    if not match or ".." in name:
        raise DownloadError(f"{name!r} is not of the form hf://owner/repo or hf://owner/repo:file.gguf")
    return Reference(f"{match[1]}/{match[2]}", match[3])


def choose(reference: Reference, files: Sequence[str]) -> list[str]:
    """Which of a repository's files are needed. Raises DownloadError where that is none, or not clear."""
    where = SCHEME + reference.repo
    if reference.file is not None:
        if reference.file not in files:
            raise DownloadError(f"{where} has no file {reference.file!r}; it has: {_listed(files)}")
        if not reference.file.endswith(".gguf"):
            raise DownloadError(f"{reference.file!r} is not a .gguf file; for a safetensors model give {where} alone")
        return [reference.file]
    weights = [f for f in files if f.endswith(".safetensors") and "/" not in f]
    if weights and "config.json" in files:
        sharded = [f for f in weights if f.startswith("model")]
        index = [f for f in files if f == "model.safetensors.index.json"]
        return [f for f in files if f in TEXT_FILES] + index + (sharded or weights)
    ggufs = [f for f in files if f.endswith(".gguf")]
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        raise DownloadError(f"{where} has several models; name one, as {where}:{ggufs[0]}; it has: {_listed(ggufs)}")
    raise DownloadError(f"{where} holds neither a .gguf file nor config.json with .safetensors files")


def fetch(name: str, progress: Progress = silent) -> Path:
    """The local path of a hub model, downloaded where it is not there. Raises DownloadError. Without a network a cached copy serves."""
    reference = parse(name)
    try:
        return _run(reference, "online", progress)
    except DownloadError as failure:
        if not any(sign in failure.message for sign in _NO_NETWORK):
            raise
    progress("huggingface.co cannot be reached; looking for a copy on this machine", 0, 0)
    try:
        return _run(reference, "offline", progress)
    except DownloadError:
        raise DownloadError(
            f"{name} cannot be fetched: huggingface.co cannot be reached and no copy is on this machine; "
            "check the network, or take a model of the catalogue (camshaft list) or a path to a model file"
        ) from None


def _run(reference: Reference, mode: str, progress: Progress) -> Path:
    """Runs the worker to its end."""
    with tempfile.TemporaryDirectory(prefix="camshaft-hub-") as work:
        out, log = Path(work) / "out", Path(work) / "log"
        command = [sys.executable, "-m", "camshaft.formats.hub_worker", mode, reference.repo, reference.file or "", str(out)]
        env = {**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
        n_before = -1
        watch: Watch | None = None

        def measure() -> int:
            nonlocal n_before, watch
            watch = watch or next((word for word in _words(out) if isinstance(word, Watch)), None)
            if watch is None:
                return 0
            n = child.tree_bytes(Path(watch.folder))
            n_before = n if n_before < 0 else n_before
            progress(f"downloading {reference.repo}", min(n - n_before, watch.n_bytes), watch.n_bytes)
            return n

        status = child.run(command, log, env, measure=measure, limits=_LIMITS)
        done = next((word for word in _words(out) if isinstance(word, Done)), None)
        if status or done is None:
            lines = child.tail(log)
            # The last line of a traceback is `module.Class: message`; our own errors are complete without the class.
            reason = lines[-1].removeprefix("camshaft.errors.DownloadError: ") if lines else f"the download ended with status {status}"
            raise DownloadError(reason if reason.startswith(SCHEME) else f"{SCHEME}{reference.repo} cannot be fetched: {reason}")
        return Path(done.path)


def _words(out: Path) -> list[Watch | Done]:
    """What the worker has said so far, one JSON object a line; a line being written is left for later."""
    if not out.exists():
        return []
    lines = out.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=Watch | Done) for line in lines]


def _listed(files: Sequence[str]) -> str:
    shown = ", ".join(files[:8])
    return shown + (f" and {len(files) - 8} more" if len(files) > 8 else "")
