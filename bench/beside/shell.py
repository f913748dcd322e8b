"""Commands run to their end, and environments that a peer has for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LIMIT_S = 900.0  # of one measurement
INSTALL_S = 3600.0


class AbsentError(Exception):
    """Something cannot be measured here. Says why, in a line."""


def sh(*args: str | Path, env: Mapping[str, str] = {}, limit_s: float = LIMIT_S) -> str:
    """What a command printed. Raises AbsentError with its own last words where it fails or takes too long."""
    words = [str(arg) for arg in args]
    try:
        done = subprocess.run(words, env=os.environ | env, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise AbsentError(f"{Path(words[0]).name} took more than {limit_s:g} s") from None
    except OSError as error:
        raise AbsentError(f"{words[0]} cannot be run: {error.strerror}") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise AbsentError(f"{Path(words[0]).name} failed ({done.returncode}): {said[-1][:300]}")
    return done.stdout


def last_json(text: str) -> Any:
    """The last line that is a JSON object: libraries print what they like before it."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise AbsentError(f"no figures in what was printed: {text[-200:]!r}")


def environment(folder: Path, *packages: str) -> Path:
    """The Python of a virtual environment with these packages, made at the first use."""
    python = folder / "bin" / "python"
    done = folder / "installed.txt"
    if not done.exists() or done.read_text() != "\n".join(packages):
        sh(sys.executable, "-m", "venv", "--clear", folder, limit_s=INSTALL_S)
        sh(python, "-m", "pip", "install", "-q", *packages, limit_s=INSTALL_S)
        done.write_text("\n".join(packages))
    return python
