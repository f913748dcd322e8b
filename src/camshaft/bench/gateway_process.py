"""A gateway as a child process: its file, its addresses, its replicas' processes, and whether anything of it is left."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from camshaft.bench.processes import children
from camshaft.bench.server_process import ServerProcess
from camshaft.bench.sse_client import Target
from camshaft.gateway.folder import read_token, running

START_S = 120.0


class GatewayProcess:
    """`camshaft up` on a file in a folder of its own. Ended by `stop` or `kill`; `start` begins it anew."""

    def __init__(self, folder: Path, text: str) -> None:
        """`text` is the file without its [gateway] ports and state folder, which are filled in."""
        self.folder = folder
        self.path = folder / "fleet.toml"
        self.state = folder / "state"
        self.port, self.admin_port = _free_ports(2)
        self._process: ServerProcess | None = None
        self.log = folder / "gateway.log"
        self.temporary = Path(tempfile.mkdtemp(prefix="gw-"))  # a short path, because sockets lie in it
        self.write(text)

    @property
    def target(self) -> Target:
        return Target("127.0.0.1", self.port)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def write(self, text: str) -> None:
        head = f'[gateway]\nport = {self.port}\nadmin_port = {self.admin_port}\nstate_dir = "{self.state}"\n'
        self.path.write_text(head + text)

    def start(self) -> None:
        """Returns once it says that it runs. Raises RuntimeError with its log where it does not."""
        command = [sys.executable, "-m", "camshaft.cli.main", "up", str(self.path)]
        self._process = ServerProcess(command, self.log, {"TMPDIR": str(self.temporary)})
        self._process.await_up(lambda: running(self.state) is not None, START_S, pause_s=0.05)

    def stop(self) -> None:
        """As an operator does it: what runs may end."""
        process, self._process = self._process, None
        if process is not None:
            process.stop()

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()

    def leftovers(self) -> list[str]:
        """Sockets and temporary files of it that are still there."""
        return [str(path) for path in self.temporary.rglob("*")]

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """The admin API. Raises urllib.error.HTTPError."""
        token = read_token(self.state / "admin.token")
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())

    def replicas(self) -> list[dict[str, Any]]:
        status = self.ask("GET", "/v1/fleet")
        return [replica for model in status["models"] for version in model["versions"] for replica in version["replicas"]]

    def await_ready(self, n: int) -> None:
        """Until so many replicas are ready. Raises RuntimeError."""
        until = time.monotonic() + START_S
        while sum(replica["state"] == "ready" for replica in self.replicas()) < n:
            if time.monotonic() > until:
                raise RuntimeError(f"{n} replicas were not ready within {START_S:g} s: {self.replicas()}")
            time.sleep(0.1)

    def workers(self) -> list[int]:
        """Process ids of its replicas."""
        return children(self.pid)


def _free_ports(n: int) -> list[int]:
    """Held together while they are chosen, so that they are n."""
    sockets = [socket.socket() for _ in range(n)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


@contextmanager
def gateway(folder: Path, text: str, n_replicas: int) -> Iterator[GatewayProcess]:
    process = GatewayProcess(folder, text)
    process.start()
    try:
        process.await_ready(n_replicas)
        yield process
    finally:
        process.stop()
        shutil.rmtree(process.temporary, ignore_errors=True)
