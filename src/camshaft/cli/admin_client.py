"""AdminClient: asks a running gateway's admin API. find: where one runs, and the token for it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from camshaft.errors import CamshaftError, ConfigError, Unavailable, from_info
from camshaft.gateway import folder
from camshaft.types import ErrorInfo

T = TypeVar("T")

CONNECT_S = 5.0
ANSWER_S = 930.0  # a little more than the gateway takes for its longest change
MAX_ANSWER_BYTES = 64_000_000
MAX_LINE_BYTES = 1_000_000
DEFAULT_FILE = Path("camshaft.toml")


class Where(NamedTuple):
    """Where to look for a gateway; "" where nothing was said."""

    file: str = ""
    state_dir: str = ""
    address: str = ""
    token_file: str = ""


class AdminClient:
    """One call is one connection."""

    def __init__(self, address: str, token: str) -> None:
        """Raises ConfigError for what is no address."""
        parts = urlsplit(address if "//" in address else f"http://{address}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{address!r} is no address; write http://HOST:PORT")
        self.address = f"{parts.scheme}://{parts.netloc}"
        self._parts = parts
        self._token = token

    def get(self, path: str, kind: type[T]) -> T:
        """Raises Unavailable where nobody answers, and what the gateway says is wrong."""
        return msgspec.json.decode(self._whole("GET", path, None), type=kind)

    def post(self, path: str, body: dict[str, Any], kind: type[T]) -> T:
        return msgspec.json.decode(self._whole("POST", path, body), type=kind)

    def follow(self, path: str) -> Iterator[bytes]:
        """The payload of each server-sent event, until the gateway ends the stream. Raises as `get`."""
        with closing(self._connection()) as connection:
            answer = self._ask(connection, "GET", path, None)
            if connection.sock is not None:
                connection.sock.settimeout(60.0)  # heartbeats come more often
            while line := self._guarded(lambda: answer.readline(MAX_LINE_BYTES)):
                if line.startswith(b"data: "):
                    yield line[6:].strip()

    def _whole(self, method: str, path: str, body: dict[str, Any] | None) -> bytes:
        with closing(self._connection()) as connection:
            answer = self._ask(connection, method, path, body)
            return bytes(self._guarded(lambda: answer.read(MAX_ANSWER_BYTES)))

    def _connection(self) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, self._parts.port, timeout=CONNECT_S, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, self._parts.port, timeout=CONNECT_S)

    def _ask(self, connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None) -> http.client.HTTPResponse:
        headers = {"authorization": f"Bearer {self._token}", "x-camshaft-actor": _actor(), "content-type": "application/json"}

        def ask() -> http.client.HTTPResponse:
            connection.connect()
            connection.sock.settimeout(ANSWER_S)
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            return connection.getresponse()

        answer: http.client.HTTPResponse = self._guarded(ask)
        if answer.status != 200:
            raise _error(answer.status, self._guarded(lambda: answer.read(MAX_LINE_BYTES)))
        return answer

    def _guarded(self, work: Any) -> Any:
        try:
            return work()
        except ssl.SSLError as error:
            raise Unavailable(f"{self.address} does not speak TLS as it should: {error.reason or error}") from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise Unavailable(f"no gateway answers at {self.address}: {why}; is it up? (camshaft up FILE)") from None


def _actor() -> str:
    """Who asks, as far as the system knows: for the gateway's events."""
    return f"{os.environ.get('USER') or os.geteuid()}@{socket.gethostname()}"[:64]


def _error(status: int, body: bytes) -> CamshaftError:
    """What the gateway said, as the error that it was there."""
    try:
        said = msgspec.json.decode(body)["error"]
        return from_info(ErrorInfo(str(said["code"]), str(said["message"]), status, said["param"]))
    except (msgspec.MsgspecError, KeyError, TypeError):
        return Unavailable(f"the answer has the status {status} and is not a gateway's; is this the address of the admin API?")


# ------------------------------------------------------------------------------------------------------------ finding


def find(where: Where) -> AdminClient:
    """The gateway that was meant, or the only one that runs. Raises ConfigError, and Unavailable where none runs."""
    if where.address:
        if not where.token_file:
            raise ConfigError("--address needs --token-file: the gateway keeps it in its state_dir, as admin.token or read.token")
        return AdminClient(where.address, folder.read_token(Path(where.token_file)))
    path = _folder(where)
    running = folder.running(path)
    if running is None:
        raise Unavailable(f"no gateway runs from {path}; start one with camshaft up, or give --address and --token-file")
    return AdminClient(running.admin, folder.read_token(Path(where.token_file or path / "admin.token")))


def _folder(where: Where) -> Path:
    """The folder of its state."""
    if where.state_dir:
        return Path(where.state_dir)
    if where.file or DEFAULT_FILE.exists():
        return _folder_of(Path(where.file or DEFAULT_FILE))
    found = [path for path in folder.default_root().glob("*") if folder.running(path) is not None]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Unavailable("no gateway runs here; start one with camshaft up FILE, or name its file with --file")
    files = ", ".join(running.file for path in found if (running := folder.running(path)) is not None)
    raise ConfigError(f"several gateways run here; name the file of one with --file: {files}")


def _folder_of(file: Path) -> Path:
    """Where a file says that the state is. Whatever else is wrong with it does not matter here."""
    try:
        named = tomllib.loads(file.read_text(encoding="utf-8"))["gateway"]["state_dir"]
        return file.absolute().parent / Path(str(named)).expanduser()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return folder.default_folder(file)
