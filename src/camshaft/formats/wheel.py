"""One file out of a wheel on PyPI. Only the wheel itself is fetched, by the user's own pip; nothing is installed or run."""

from __future__ import annotations

import os
import sys
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from camshaft.errors import DownloadError
from camshaft.formats import child
from camshaft.formats.catalogue import Part

_CHUNK_BYTES = 1 << 20
# What pip and its libraries say when the index cannot be reached.
_NO_NETWORK = (
    "Failed to establish a new connection", "Name or service not known", "name resolution", "NameResolutionError", "ConnectTimeout",
    "NewConnectionError", "Read timed out", "Connection refused", "ProxyError", "Network is unreachable", "Could not connect",
)  # fmt: skip


class Digest(Protocol):
    def update(self, data: bytes, /) -> None: ...


def download(part: Part, folder: Path, seen: Callable[[int], None], limits: child.Limits) -> Path:
    """The wheel of `part`, in `folder`, which must be empty. `seen` hears the bytes so far. Raises DownloadError."""
    temporary, target, log = folder / "tmp", folder / "wheel", folder / "pip.log"
    temporary.mkdir()
    target.mkdir()
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--disable-pip-version-check",
        "--no-input", "--progress-bar", "off", "--retries", "2", "-d", str(target), f"{part.package}=={part.version}",
    ]  # fmt: skip
    # pip downloads to its temporary folder first. Ours is on the disk of the cache, and there the growth can be seen.
    env = {**os.environ, "TMPDIR": str(temporary)}

    def measure() -> int:
        n = child.tree_bytes(folder)
        seen(n)
        return n

    status = child.run(command, log, env, measure=measure, limits=limits)
    wheels = list(target.glob("*.whl"))
    if status or len(wheels) != 1:
        raise DownloadError(_explain(part, child.tail(log)))
    return wheels[0]


def extract(wheel: Path, member: str, out: BinaryIO, digest: Digest, most_bytes: int) -> int:
    """Appends the member to `out` and `digest`, at most `most_bytes`, and returns its size. Raises DownloadError, or OSError from `out`."""
    n = 0
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(_CHUNK_BYTES):
                n += len(chunk)
                # The directory's word on the size is not trusted: a small archive can unpack to anything.
                if n > most_bytes:
                    raise DownloadError(f"{member} in {wheel.name} is larger than the catalogue says; it is not the file expected")
                digest.update(chunk)
                out.write(chunk)
    except KeyError:
        raise DownloadError(f"{wheel.name} holds no {member}; the catalogue and the package disagree") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise DownloadError(f"{wheel.name} is damaged: {error}; pull it again") from None
    return n


def _explain(part: Part, lines: list[str]) -> str:
    """pip's output as one line that says what to do."""
    what = f"{part.package} {part.version}"
    text = "\n".join(lines)
    if "No module named pip" in text:
        return (
            f"{what} is fetched with pip, which this environment lacks: run `{sys.executable} -m ensurepip`, or give a path to a model file"
        )
    if "No space left on device" in text:
        return f"the disk is full: {what} could not be stored; free some space or set CAMSHAFT_CACHE to a folder on another disk"
    if any(sign in text for sign in _NO_NETWORK):
        return f"{what} could not be fetched: the package index cannot be reached; check the network, or give a path to a model file"
    errors = [line for line in lines if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR:").strip() if errors else lines[-1] if lines else "pip said nothing"
    if reason == "Exception:":  # a traceback follows, whose last line says what happened
        reason = lines[-1]
    return f"{what} could not be fetched: {reason}"
