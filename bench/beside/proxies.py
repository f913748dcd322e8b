"""What stands before the fake server: nothing, our gateway, LiteLLM's proxy. Each a process of its own, with its defaults."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

import harness
import psutil  # type: ignore[import-untyped, unused-ignore]

from beside.shell import AbsentError, environment, sh
from camshaft.bench.server_process import ServerProcess
from camshaft.bench.sse_client import Target

LITELLM = "litellm[proxy]>=1.108,<2"
START_S = 300.0  # LiteLLM takes half a minute of a busy machine to be imported
# LiteLLM looks up prices and reports use over the network unless it is told not to.
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION"}


class Proxy(NamedTuple):
    name: str
    port: int
    process: psutil.Process

    def pids(self) -> list[int]:
        """Of all processes that it is made of."""
        return [self.process.pid, *(child.pid for child in self.process.children(recursive=True))]

    def resident_mib(self) -> float:
        return float(sum(psutil.Process(pid).memory_info().rss for pid in self.pids()) / (1 << 20))


@contextmanager
def fake(folder: Path) -> Iterator[Proxy]:
    """The server that answers."""
    port = harness.free_port()
    command = [sys.executable, "-m", "camshaft.bench.fake_openai", "--port", str(port)]
    with _running("direct", command, Target("127.0.0.1", port), "/health", folder) as found:
        yield found


@contextmanager
def camshaft(upstream: int, folder: Path) -> Iterator[Proxy]:
    port = harness.free_port()
    file = folder / "overhead.toml"
    file.write_text(
        f'[gateway]\nport = {port}\nadmin_port = 0\nstate_dir = "{folder / "state"}"\nlog_level = "warning"\n'
        f"[foreign]\nmax_num_seqs = 2000\n"  # the fake one is never full
        f'[models.fake.versions.v1]\nengine = "openai"\nurl = "http://127.0.0.1:{upstream}/v1"\n'
    )
    command = [sys.executable, "-m", "camshaft.cli.main", "up", str(file)]
    with _running("camshaft", command, Target("127.0.0.1", port), "/ready", folder) as found:
        yield found


def litellm(work: Path, workers: int) -> Callable[[int, Path], AbstractContextManager[Proxy]]:
    """Installs it at the first use. Raises AbsentError."""
    python = environment(work / "litellm", LITELLM)

    @contextmanager
    def served(upstream: int, folder: Path) -> Iterator[Proxy]:
        port = harness.free_port()
        there = {"model": "openai/fake", "api_base": f"http://127.0.0.1:{upstream}/v1", "api_key": "none"}
        # Neither of the two asks for a key. LiteLLM has to be told that this is meant.
        open_to_all = {"dangerously_permit_weak_or_unset_master_key": True}
        config = {"model_list": [{"model_name": "fake", "litellm_params": there}], "general_settings": open_to_all}
        file = folder / "litellm.yaml"
        file.write_text(json.dumps(config))  # which is YAML as well
        words = ["--config", str(file), "--host", "127.0.0.1", "--port", str(port), "--num_workers", str(workers)]
        command = [str(python.with_name("litellm")), *words]
        with _running("litellm", command, Target("127.0.0.1", port), "/health/liveliness", folder, QUIET) as found:
            yield found

    return served


def litellm_version(work: Path) -> str:
    python = work / "litellm" / "bin" / "python"
    return sh(python, "-c", "import importlib.metadata as m; print(m.version('litellm'))").strip()


@contextmanager
def _running(name: str, command: Sequence[str], target: Target, path: str, folder: Path, env: Mapping[str, str] = {}) -> Iterator[Proxy]:
    """Raises AbsentError with the last of what it said."""
    server = ServerProcess(command, folder / f"{name}.log", env)
    family: list[psutil.Process] = []
    try:
        try:
            server.await_up(lambda: harness.answers(target, path), START_S)
        except RuntimeError as error:
            raise AbsentError(f"{name}: {' '.join(str(error).split())[-300:]}") from None
        process = psutil.Process(server.pid)
        family = process.children(recursive=True)
        yield Proxy(name, target.port, process)
    finally:
        server.stop(harness.STOP_S)
        for left in family:
            if left.is_running():
                left.kill()
