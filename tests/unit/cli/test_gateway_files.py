"""What a file can change of a gateway that serves, and which file a start takes."""

from __future__ import annotations

from pathlib import Path

from api_doubles import CHAT_PATH, HI, Scripted, app_over, client_of
from camshaft.cli.gateway import Door, Source, _not_rolled_back
from camshaft.gateway import file
from camshaft.gateway.database import Accepted
from camshaft.gateway.history import History

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
    changed = HARMFUL.replace("max_n = 1", "max_n = 2")
    assert _not_rolled_back(source(changed), history).text == changed


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
