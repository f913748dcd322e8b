"""The place where a worker meets its gateway does not stay behind."""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path

from camshaft.cluster.meeting import STALE_S, sweep


def left_behind(folder: Path, name: str, age_s: float) -> Path:
    place = folder / name
    place.mkdir(mode=0o700)
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(place / "s"))
    sock.close()
    os.utime(place, (time.time() - age_s,) * 2)
    return place


def test_only_old_places_of_ours_are_swept() -> None:
    with tempfile.TemporaryDirectory(prefix="s-") as short:  # a socket's path is short
        folder = Path(short)
        old, new = left_behind(folder, "camshaft-old", 2 * STALE_S), left_behind(folder, "camshaft-new", 0.0)
        other = left_behind(folder, "other", 2 * STALE_S)
        file = folder / "camshaft-file"
        file.mkdir()
        (file / "s").write_text("not a socket")
        os.utime(file, (0.0, 0.0))
        assert sweep(folder) == 1
        assert not old.exists()
        assert new.exists()
        assert other.exists()
        assert file.exists()
