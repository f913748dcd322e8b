"""What an operator asks for and cannot have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from camshaft.errors import BadRequest
from camshaft.gateway.table import FileRejected
from edge_rig import edge, model


async def test_the_last_share_is_not_taken_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with edge(model("m"), tmp_path, monkeypatch) as rig:
        before = dict(rig.gateway.fleet.models["m"].weights)
        with pytest.raises(BadRequest, match="above 0"):
            await rig.gateway.operator.weights("m", {"v1": 0})
        assert rig.gateway.fleet.models["m"].weights == before


@pytest.mark.parametrize("what", ["gone", "folder", "pipe", "binary"])
async def test_a_file_that_cannot_be_read_holds_nothing_up(what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with edge(model("m"), tmp_path, monkeypatch) as rig:
        path = tmp_path / "fleet.toml"
        path.unlink()
        if what == "folder":
            path.mkdir()
        elif what == "pipe":
            os.mkfifo(path)  # nobody writes to it, so that opening it would never end
        elif what == "binary":
            path.write_bytes(b"\xff\xfe")
        with pytest.raises(FileRejected, match="fleet"):
            await rig.gateway.operator.reload()
