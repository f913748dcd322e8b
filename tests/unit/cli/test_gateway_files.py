"""What a file can change of a gateway that serves, and which file a start takes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from api_doubles import CHAT_PATH, HI, Scripted, app_over, client_of
from camshaft.cli.gateway import Door, Source, _not_rolled_back
from camshaft.cli.up import _overridden
from camshaft.gateway import file
from camshaft.gateway.database import Accepted
from camshaft.gateway.history import History
from edge_rig import edge, model

PATH = Path("/nowhere/camshaft.toml")
GOOD = '[models.m.versions.v]\nsource = "smollm2-135m"\n'
HARMFUL = f"[gateway]\nmax_n = 1\n{GOOD}"


class Nowhere:
    """Implements history.Files and keeps nothing."""

    def keep_file(self, file: Accepted) -> None:
        pass

    async def files(self) -> list[Accepted]:
        return []


def source(text: str) -> Source:
    return Source(PATH, text, file.parse(text, PATH, {}))


def test_a_restart_does_not_bring_back_what_was_rolled_back() -> None:
    history = History(Nowhere())
    assert _not_rolled_back(source(GOOD), history).text == GOOD
    for text in (GOOD, HARMFUL):
        history.accept(text, "me")
    assert _not_rolled_back(source(HARMFUL), history).text == HARMFUL
    history.rolled_back(history.target(), "me")
    taken = _not_rolled_back(source(HARMFUL), history)
    assert (taken.text, taken.spec.server.max_n) == (GOOD, 16)
    # What the command line said holds for it as well.
    over = partial(_overridden, given={"host": None, "port": "9999", "log_level": None})
    assert _not_rolled_back(source(HARMFUL)._replace(over=over), history).spec.server.port == 9999
    changed = HARMFUL.replace("max_n = 1", "max_n = 2")
    assert _not_rolled_back(source(changed), history).text == changed


async def test_the_command_line_goes_before_each_file_that_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"host": None, "port": "9999", "log_level": None}
    over = partial(_overridden, given=given)
    async with edge("[gateway]\nport = 8100\n" + model("m"), tmp_path, monkeypatch, over=over) as rig:
        path = tmp_path / "fleet.toml"
        path.write_text(path.read_text().replace("port = 8100", "port = 8200\nmax_n = 3"))
        for change in (rig.gateway.operator.reload, rig.gateway.operator.rollback):
            await change()
            assert (rig.gateway.fleet.spec.server.port, (await rig.gateway.operator.status()).restart_for) == (9999, ())
        assert rig.gateway.fleet.spec.server.max_n == 16


async def test_bounds_and_origins_change_by_reload() -> None:
    app = app_over(Scripted())
    async with client_of(app) as client:
        assert (await client.post(CHAT_PATH, json=HI | {"n": 2})).status_code == 200
        Door(app, None).become(source('[gateway]\nmax_n = 1\ncors_origins = ["https://a.b"]\n' + GOOD).spec)
        reply = await client.post(CHAT_PATH, json=HI | {"n": 2}, headers={"origin": "https://a.b"})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (400, "https://a.b")
        Door(app, None).become(source(GOOD).spec)
        reply = await client.post(CHAT_PATH, json=HI | {"n": 2}, headers={"origin": "https://a.b"})
        assert reply.status_code == 200
        assert "access-control-allow-origin" not in reply.headers
