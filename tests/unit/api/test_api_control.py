"""The admin API: who may do what, what is refused, and that every change is an event."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from api_doubles import client_of
from camshaft.api import control_events
from camshaft.api.app import App
from camshaft.api.control import create_control_app
from camshaft.config import ServerConfig
from camshaft.errors import Unavailable
from camshaft.gateway import admin as admin_module
from camshaft.gateway.admin import Admin
from camshaft.gateway.events import EventLog, Happening
from camshaft.gateway.table import FileRejected
from fleet_fake import FakeFleet, FakePast
from http_server import server

TOKENS = {"admin": "the-admin-token", "read": "the-read-token"}
ADMIN = {"authorization": "Bearer the-admin-token", "x-camshaft-actor": "ann@desk"}
READ = {"authorization": "Bearer the-read-token"}
LOOKS = ("/v1/fleet", "/v1/files", "/v1/events")
CHANGES: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
    "/v1/scale": ({"version": "small/v1", "replicas": 3}, ("scale", "small/v1", 3)),
    "/v1/drain": ({"replica": "small/v1-1"}, ("drain", "small/v1-1")),
    "/v1/restart": ({"replica": "small/v1-1"}, ("restart", "small/v1-1")),
    "/v1/weights": ({"model": "small", "weights": {"v1": 80, "v2": 20}}, ("weights", "small", {"v1": 80, "v2": 20})),
    "/v1/reload": ({"force": True}, ("reload", True)),
    "/v1/rollback": ({"revision": 1}, ("rollback", 1)),
}


class Desk:
    """A fake fleet, its events and the app over both."""

    def __init__(self, past: FakePast | None = None) -> None:
        self.fleet = FakeFleet()
        self.past = past or FakePast()
        self.log = EventLog()
        self.app: App = create_control_app(Admin(self.fleet, self.log, self.past), TOKENS, ServerConfig())

    @property
    def kinds(self) -> list[str]:
        return [h.kind for h in self.log.recent()]


@pytest.fixture
def desk() -> Desk:
    return Desk()


async def test_nothing_is_told_or_done_without_a_token(desk: Desk) -> None:
    async with client_of(desk.app) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic the-admin-token"}):
            for path in LOOKS:
                reply = await client.get(path, headers=headers)
                assert (reply.status_code, reply.json()["error"]["code"]) == (401, "invalid_admin_token")
                assert "API key" not in reply.text
                assert "admin.token and read.token in its state folder" in reply.text
            for path, (body, _) in CHANGES.items():
                assert (await client.post(path, json=body, headers=headers)).status_code == 401
        assert (await client.get("/health")).status_code == 200
    assert desk.fleet.asked == []
    assert desk.kinds == []


async def test_a_dashboard_looks_and_does_not_touch(desk: Desk) -> None:
    async with client_of(desk.app) as client:
        for path in LOOKS:
            assert (await client.get(path, headers=READ)).status_code == 200
        for path, (body, _) in CHANGES.items():
            reply = await client.post(path, json=body, headers=READ)
            assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
    assert desk.fleet.asked == []


@pytest.mark.parametrize("path", CHANGES)
async def test_each_change_is_made_once_and_is_an_event(desk: Desk, path: str) -> None:
    body, asked = CHANGES[path]
    async with client_of(desk.app) as client:
        reply = await client.post(path, json=body, headers=ADMIN)
    assert (reply.status_code, reply.json()) == (200, {"changes": [f"{asked[0]} done"], "evidence": {"n": 1}})
    assert desk.fleet.asked == [asked]
    (noted,) = desk.log.recent()
    assert (noted.kind, noted.text) == (f"admin.{asked[0]}", f"{asked[0]} done")
    assert noted.evidence == {"by": "ann@desk from 127.0.0.1", "n": 1}


WRONG: list[tuple[str, Any]] = [
    ("/v1/scale", {"version": "small/v1"}),
    ("/v1/scale", {"version": "small/v1", "replicas": -1}),
    ("/v1/scale", {"version": "small/v1", "replicas": 1_000}),
    ("/v1/scale", {"version": "small/v1", "replicas": 1.5}),
    ("/v1/scale", {"version": "small/v1", "replicas": True}),
    ("/v1/scale", {"version": "", "replicas": 1}),
    ("/v1/scale", {"version": "small/v1", "replicas": 1, "replica": 1}),
    ("/v1/scale", []),
    ("/v1/weights", {"model": "small", "weights": {}}),
    ("/v1/weights", {"model": "small", "weights": {"v1": -1}}),
    ("/v1/weights", {"model": "small", "weights": {str(i): 1 for i in range(99)}}),
    ("/v1/weights", {"model": "small", "weights": {"v1": 0}}),
    ("/v1/drain", {"replica": "x" * 1_000}),
    ("/v1/reload", {"forced": True}),
    ("/v1/reload?force=1", {}),
    ("/v1/rollback", {"revision": 0}),
]


@pytest.mark.parametrize(("path", "body"), WRONG)
async def test_bodies_are_strict(desk: Desk, path: str, body: Any) -> None:
    async with client_of(desk.app) as client:
        reply = await client.post(path, json=body, headers=ADMIN)
        assert reply.status_code == 400, reply.text
        assert (await client.post(path, content=b"x" * 100_000, headers=ADMIN)).status_code in (400, 413)
    assert desk.fleet.asked == []


async def test_what_is_not_there_and_what_cannot_be_are_told_apart(desk: Desk) -> None:
    async with client_of(desk.app) as client:
        reply = await client.post("/v1/scale", json={"version": "none/v1", "replicas": 1}, headers=ADMIN)
        assert (reply.status_code, reply.json()["error"]["code"]) == (404, "unknown_name")
        desk.fleet.fails = FileRejected("camshaft.toml", ["[models] is empty", "unknown setting 'x'"])
        reply = await client.post("/v1/reload", json={}, headers=ADMIN)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "file_rejected")
        assert "[models] is empty; unknown setting 'x'" in reply.json()["error"]["message"]
        assert (await client.get("/v1/nothing", headers=ADMIN)).status_code == 404
        assert (await client.get("/v1/scale", headers=ADMIN)).status_code == 405
        assert (await client.get("/v1/chat/completions", headers=ADMIN)).status_code == 404
    assert desk.kinds == ["admin.scale_refused", "admin.reload_refused"]
    assert desk.log.recent()[1].evidence == {"by": "ann@desk from 127.0.0.1", "code": "file_rejected"}


async def test_a_change_that_takes_too_long_is_given_up_aloud(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_module, "CHANGE_S", 0.01)
    desk.fleet.hangs.clear()
    async with client_of(desk.app) as client:
        reply = await client.post("/v1/restart", json={"replica": "r"}, headers=ADMIN)
    assert reply.status_code == 504
    assert desk.kinds == ["admin.restart_refused"]


async def test_an_actor_who_would_forge_the_log_is_left_out(desk: Desk) -> None:
    async with client_of(desk.app) as client:
        await client.post("/v1/reload", json={}, headers=ADMIN | {"x-camshaft-actor": "a b=c"})
    assert desk.log.recent()[0].evidence["by"] == "127.0.0.1"


async def test_status_is_whole(desk: Desk) -> None:
    async with client_of(desk.app) as client:
        status = (await client.get("/v1/fleet", headers=READ)).json()
        files = (await client.get("/v1/files", headers=READ)).json()["files"]
    (model,) = status["models"]
    assert [len(v["replicas"]) for v in model["versions"]] == [2, 1]
    assert model["versions"][0]["replicas"][1]["detail"] == "killed by signal 9"
    assert [f["revision"] for f in files if f["current"]] == [3]


# ------------------------------------------------------------------------------------------------------------- events


def old(i: int) -> Happening:
    return Happening("replica.ready", "r", f"old {i}", at=1_000.0 + i)


async def events_of(client: httpx.AsyncClient, query: str) -> tuple[list[str], bool]:
    reply = (await client.get(f"/v1/events{query}", headers=READ)).json()
    return [e["text"] for e in reply["events"]], reply["complete"]


async def test_events_of_this_run_and_of_earlier_ones_are_one_list() -> None:
    desk = Desk(FakePast(*(old(i) for i in range(5))))
    for i in range(3):
        desk.log.note(Happening("a.b", "s", f"new {i}"))
    async with client_of(desk.app) as client:
        everything = [*(f"old {i}" for i in range(5)), "new 0", "new 1", "new 2"]
        assert await events_of(client, "") == (everything, True)
        assert await events_of(client, "?limit=4") == (everything[-4:], True)
        assert await events_of(client, "?limit=0") == ([], True)
        assert await events_of(client, "?limit=2") == (everything[-2:], True)
        assert await events_of(client, "?since=1003") == (everything[4:], True)
        assert await events_of(client, "?until=1002&limit=1") == (["old 1"], True)
        desk.past.broken = Unavailable("no disk")
        assert await events_of(client, "") == (everything[5:], False)
        for query in ("?since=x", "?since=nan", "?since=-1", "?limit=1e9", "?sinc=1", "?since=1&since=2", "?since"):
            assert (await client.get(f"/v1/events{query}", headers=READ)).status_code == 400, query


def test_events_are_followed_as_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_events, "HEARTBEAT_S", 0.02)
    made: list[tuple[Desk, asyncio.AbstractEventLoop]] = []

    def make() -> App:
        made.append((Desk(FakePast(old(0))), asyncio.get_running_loop()))
        return made[0][0].app

    with server(make) as running:
        desk, loop = made[0]
        url = f"{running.url}/v1/events?follow=1&since=0"
        with httpx.Client(headers=READ, timeout=20) as client, client.stream("GET", url) as reply:
            lines = reply.iter_lines()
            assert "old 0" in next(line for line in lines if line.startswith("data: "))
            assert next(line for line in lines if line).startswith(":")
            loop.call_soon_threadsafe(desk.log.note, Happening("a.b", "s", "as it happens"))
            assert "as it happens" in next(line for line in lines if line.startswith("data: "))
        # Who left is forgotten: the server stops at once, and nobody follows.
        with httpx.Client(headers=READ, timeout=20) as client, client.stream("GET", url) as reply:
            running.begin_stop()
            assert "shut down" in "".join(reply.iter_lines())
