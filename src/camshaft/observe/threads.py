"""Names of threads as the system shows them, so that `top -H` and a profile say who took the time."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

_MAX_CHARS = 15  # what Linux keeps


def name_thread(name: str) -> None:
    """Name the calling thread. Does nothing where the system has no such names."""
    with suppress(OSError):
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text(name[:_MAX_CHARS])
