"""Meeting: a private place in the file system where one child connects to us."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import struct
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from camshaft.errors import ConfigError

_NAME = "s"
_PREFIX = "camshaft-"
STALE_S = 3600.0  # far longer than any worker takes to come


class Meeting:
    """A listening Unix socket of mode 0600 in a new directory of mode 0700. It is gone once the child has come, or with `close`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX))  # 0700
        self.path = self._folder / _NAME
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        made = False
        try:
            self._listener.bind(str(self.path))
            self.path.chmod(0o600)
            self._listener.listen(4)
            self._listener.setblocking(False)
            made = True
        except OSError as error:
            raise ConfigError(f"no socket can be made at {self.path} ({error}); set TMPDIR to a short path that you may write to") from None
        finally:
            if not made:
                self.close()

    @property
    def listener(self) -> socket.socket:
        return self._listener

    def close(self) -> None:
        """Idempotent."""
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def sweep(folder: Path | None = None) -> int:
    """Remove what gateways of this user left that were killed before their worker had come. Returns how many."""
    oldest = time.time() - STALE_S
    n = 0
    for found in (folder or Path(tempfile.gettempdir())).glob(f"{_PREFIX}*/{_NAME}"):
        with suppress(OSError):
            place = found.parent
            status = place.lstat()
            if status.st_uid == os.geteuid() and stat.S_ISDIR(status.st_mode) and status.st_mtime < oldest and found.is_socket():
                found.unlink()
                place.rmdir()
                n += 1
    return n


def join(path: Path) -> socket.socket:
    """The child's end: connect, and take the place away at once, so that nothing is left of it whoever dies. Raises OSError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(str(path))
    except OSError:
        sock.close()
        raise
    finally:
        with suppress(OSError):
            path.unlink()
            path.parent.rmdir()
    return sock


def is_ours(sock: socket.socket) -> bool:
    """Whether the process at the other end is the same user's. True where the system cannot tell: then the directory's mode must do."""
    if sys.platform != "linux":
        return True
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return bool(uid == os.getuid())
