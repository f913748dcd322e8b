"""Folder: where one gateway keeps its state, for its user alone: database, admin tokens, and who runs it right now."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from camshaft.errors import ConfigError
from camshaft.formats.cache import whole_or_nothing

log = logging.getLogger(__name__)

TOKEN_BYTES = 32
MAX_FILE_BYTES = 65_536
TOKENS = {"admin": "may change the fleet", "read": "may look at it"}  # in NAME.token


class Running(Struct, frozen=True):
    """Who runs: what `camshaft ctl` needs to find it."""

    pid: int
    admin: str  # address of the admin API
    address: str  # of the public port
    file: str


class Folder:
    """Locked while it is open, so that a second gateway cannot write into it."""

    def __init__(self, path: Path) -> None:
        """Made where it is not there. Raises ConfigError where it is not this user's own, cannot be written, or is in use."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            found = path.stat()
            if found.st_uid != os.geteuid():
                raise ConfigError(f"{path} belongs to somebody else; give a state_dir of your own")
            if stat.S_IMODE(found.st_mode) & 0o077:
                path.chmod(0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"state_dir {path}: {error.strerror or error}; give one that can be written") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            other = running(path)
            who = f"process {other.pid} serves {other.file} from it" if other else "another gateway uses it"
            raise ConfigError(f"state_dir {path} is in use: {who}; stop that one, or give another state_dir") from None

        with suppress(OSError):
            (path / "running.json").unlink()  # of one that was killed; from now on it would name a process that is not this one

    @property
    def database(self) -> Path:
        return self.path / "state.db"

    def token(self, name: str) -> str:
        """The token of this name, made at first use. One that others could have read is replaced. Raises ConfigError."""
        path = self.path / f"{name}.token"
        try:
            if path.exists() and not _is_private(path):
                log.warning("%s was open to others; it holds a new token now", path)
                path.unlink()
            found = _read(path)
            if not found:
                found = secrets.token_urlsafe(TOKEN_BYTES)
                with whole_or_nothing(path, ".token-") as file:
                    file.write(f"{found}\n".encode())
            return found
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}; the admin API needs a token there") from None

    def announce(self, running: Running) -> None:
        """Say who runs and where. A disk that does not take it is logged: it costs `camshaft ctl` its comfort and nothing else."""
        try:
            with whole_or_nothing(self.path / "running.json", ".running-", durable=False) as file:
                file.write(msgspec.json.encode(running))
        except OSError as error:
            log.warning(
                "cannot write %s: %s; give camshaft ctl the --address %s", self.path / "running.json", error.strerror, running.admin
            )

    def close(self) -> None:
        """Idempotent."""
        if self._lock >= 0:
            with suppress(OSError):
                (self.path / "running.json").unlink()
            os.close(self._lock)  # which unlocks
            self._lock = -1


def running(path: Path) -> Running | None:
    """Who runs from this folder; None where nobody does."""
    try:
        found = msgspec.json.decode((path / "running.json").read_bytes()[:MAX_FILE_BYTES], type=Running)
    except (OSError, msgspec.MsgspecError):
        return None
    return found if _is_locked(path) else None


def read_token(path: Path) -> str:
    """A token from its file. Raises ConfigError."""
    try:
        found = _read(path)
    except OSError as error:
        raise ConfigError(f"cannot read the token in {path}: {error.strerror or error}") from None
    if not found:
        raise ConfigError(f"there is no token in {path}; the gateway makes one at its first start")
    return found


def default_root(env: Mapping[str, str] = os.environ) -> Path:
    """Where the folders of all gateways of this user are: $XDG_STATE_HOME/camshaft or ~/.local/state/camshaft."""
    base = env.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "camshaft"


def default_folder(file: Path, env: Mapping[str, str] = os.environ) -> Path:
    """The folder of the gateway that serves `file`, where that names none."""
    whole = str(file.absolute())
    return default_root(env) / f"{file.stem}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _read(path: Path) -> str:
    """The first line; "" where there is no file."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_FILE_BYTES).decode("ascii", "replace").strip().split("\n")[0]
    except FileNotFoundError:
        return ""


def _is_private(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _is_locked(path: Path) -> bool:
    try:
        fd = os.open(path / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False
