"""The machine's fingerprint, so that a figure never travels without it."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import Struct

from camshaft import _native


class Machine(Struct, frozen=True):
    cpu: str
    cores: int  # that this process may use
    memory_gib: float
    isa: str  # the kernels chosen
    system: str
    python: str
    camshaft: str


def fingerprint() -> Machine:
    """This machine, this build."""
    return Machine(
        cpu=_cpu_name(),
        cores=_native.usable_cores(),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        isa=os.environ.get("CAMSHAFT_ISA") or _native.available_isas()[0],
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=platform.python_version(),
        camshaft=_version(),
    )


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        fields = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        clean = {key.strip(): value.strip() for key, value in fields.items()}
        return f"{clean.get('model name', 'unknown')} (family {clean.get('cpu family', '?')}, model {clean.get('model', '?')})"
    return platform.processor() or "unknown"


def _version() -> str:
    try:
        return version("camshaft")
    except PackageNotFoundError:
        return "source tree"
