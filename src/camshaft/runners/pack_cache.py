"""PackCache: packed weights of earlier starts, so that this one maps them instead of packing anew.

They lie in the user's own cache folder, beside the models that are pulled there, whatever the model's own folder: that may be another's,
or read-only. A name is made of all that decides the bytes: the sha256 of the model's files, how the native runtime packs (`packing_id`,
which today is the same for all instruction sets), the version of what is packed under which name, and --quantize. So a name never
has to be reused for other bytes: whoever writes makes a new file and renames it, whoever reads keeps what it mapped, and two processes
that start at once write the same bytes twice at worst. The folder has a size; what was of no use for longest goes first.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from camshaft import _native
from camshaft.formats.cache import whole_or_nothing
from camshaft.runners import pack_file
from camshaft.runners.pack_file import Pack, Packed

log = logging.getLogger(__name__)

# Raise it with every change of what is packed under a name: the order of rows, which tensor it is, how --quantize treats it.
CONTENT_VERSION = 1
WORTH_KEEPING_BYTES = 16 << 20  # less is packed sooner than it is found
_UNFINISHED = ".writing-"
_SUFFIX = ".pack"
_DISK_MARGIN_BYTES = 256 << 20
_LAST_WAIT_S = 10.0


class _StoppedError(Exception):
    """There is no time left to finish."""


class PackCache:
    """The packs in `folder`, at most `max_bytes` of them together; 0 keeps none and finds none."""

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str, threads: int) -> Pack | None:
        """The pack of this key, checked by so many threads. One that is damaged or that others can write to is as good as none."""
        path = self._path(key)
        if not self._max_bytes or not path.exists():
            return None
        pack = pack_file.read(path, key, threads)
        if pack is None:
            log.warning("the packed weights in %s are damaged or not this user's own; they are packed anew", path)
            with suppress(OSError):
                path.unlink()
        return pack

    def keep(self, key: str, matrices: Sequence[Packed]) -> Writing | None:
        """Begins to write a pack on a thread of its own, or does nothing where it would not be worth it or would not fit."""
        n_bytes = sum(m.data.nbytes for m in matrices)
        if not WORTH_KEEPING_BYTES <= n_bytes <= self._max_bytes:
            return None
        return Writing(lambda stop: self._write(key, matrices, n_bytes, stop))

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}{_SUFFIX}"

    def _write(self, key: str, matrices: Sequence[Packed], n_bytes: int, stop: threading.Event) -> None:
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._sweep()
            self._make_room(n_bytes, path)
            if shutil.disk_usage(self._folder).free < n_bytes + _DISK_MARGIN_BYTES:
                log.info("packed weights are not kept: the disk of %s is nearly full", self._folder)
                return
            with whole_or_nothing(path, _UNFINISHED) as out:
                fcntl.flock(out, fcntl.LOCK_EX)  # says that somebody is still at it
                for _ in pack_file.write(out, key, matrices):
                    if stop.is_set():
                        raise _StoppedError
        except _StoppedError:
            log.info("packed weights are not kept: there was no time to write them")
        except OSError as error:
            log.info("packed weights are not kept in %s: %s", self._folder, error.strerror or error)

    def _sweep(self) -> None:
        """Removes what a writer left that was killed."""
        for left in self._folder.glob(f"{_UNFINISHED}*"):
            with suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()

    def _make_room(self, n_bytes: int, new: Path) -> None:
        """Removes what was of no use for longest until a pack of `n_bytes` fits. Programs that mapped it keep what they mapped."""
        found: list[tuple[int, int, Path]] = []
        for path in self._folder.glob(f"*{_SUFFIX}"):
            with suppress(OSError):
                stat = path.stat()
                if path != new:
                    found.append((stat.st_mtime_ns, stat.st_size, path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if total + n_bytes <= self._max_bytes:
                return
            with suppress(OSError):
                path.unlink()
            total -= size


class Writing:
    """A pack being written. The thread dies with the process, which leaves a file without a name that the next writer removes."""

    def __init__(self, work: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=work, args=(self._stop,), name="camshaft-packs", daemon=True)
        self._thread.start()

    def end(self, wait_s: float = _LAST_WAIT_S) -> None:
        """Lets it finish for a while, then stops it. Idempotent."""
        self._thread.join(wait_s)
        self._stop.set()
        self._thread.join()


def key_of(model_hash: str, quantize: str) -> str:
    """The name of a model's pack."""
    parts = ("camshaft-pack", str(CONTENT_VERSION), f"{_native.packing_id():016x}", model_hash, quantize)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]
