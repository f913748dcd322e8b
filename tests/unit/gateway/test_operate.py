"""What an operator sees, asks for, and cannot have."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from api_doubles import CHAT_PATH
from camshaft.errors import BadRequest
from camshaft.gateway.control import TenantStatus
from camshaft.gateway.table import FileRejected
from edge_rig import digest, edge, model
from gateway_rig import Mortal, until


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


async def test_the_status_shows_what_was_set_by_hand_beside_what_the_file_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async with edge(model("m"), tmp_path, monkeypatch) as rig:
        operator = rig.gateway.operator
        await operator.weights("m", {"v1": 7})
        await operator.scale("m/v1", 2)
        (version,) = (await operator.status()).models[0].versions
        assert (version.weight, version.weight_in_file, version.wanted, version.wanted_in_file) == (7, 100, 2, 1)
        await rig.ready()
        await operator.drain("m/v1-1")
        await until(lambda: rig.version("m").pool.replicas[0].state == "gone")
        (version,) = (await operator.status()).models[0].versions
        assert version.replicas[0].detail == "drained by hand"


async def test_the_status_shows_every_tenant_and_what_it_has_inside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = (
        model("m")
        + f"""
[tenants.free]
keys = ["{digest("free")}"]
[tenants.bound]
keys = ["{digest("bound")}"]
limits = {{ requests_per_minute = 60 }}
"""
    )
    async with edge(text, tmp_path, monkeypatch, lambda spec: Mortal(token_s=0.01)) as rig:
        operator = rig.gateway.operator
        assert (await operator.status()).tenants == (TenantStatus("bound", requests_left=60.0), TenantStatus("free"))
        async with rig.client("free") as client:
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 400, "ignore_eos": True}
            asking = asyncio.ensure_future(client.post(CHAT_PATH, json=body))
            await until(lambda: rig.version("m").line.n_running == 1)
            assert (await operator.status()).tenants[1] == TenantStatus("free", running=1)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
