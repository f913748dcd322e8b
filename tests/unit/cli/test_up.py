"""`camshaft up`: what it says of a file before anything runs, and what is shown of a fleet that does."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from camshaft.cli import fleet_view, up
from camshaft.cli.main import main
from camshaft.config import ServerConfig
from camshaft.gateway.events import EventLog, Happening, logged
from camshaft.gateway.folder import Folder, Running, default_folder
from camshaft.observe.log import configure
from fleet_fake import FakeFleet

ROOT = Path(__file__).parents[3]
FILE = '[gateway]\nport = {port}\n[models.m.versions.v1]\nsource = "smollm2-135m"\n'


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.toml")), ids=lambda p: p.name)
def test_the_examples_are_fit_to_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(path.read_text().splitlines()) <= 60
    assert main(["up", str(path), "--check"]) == 0
    said = capsys.readouterr()
    assert "serves http://127.0.0.1:8000/v1; admin API on 127.0.0.1:8001" in said.out
    assert "model small" in said.out
    assert said.err == ""


def test_everything_wrong_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "camshaft.toml"
    path.write_text("[gateway]\nprot = 1\n[models.m.versions.v1]\nreplicas = -1\n")
    for words in (["--check"], []):
        assert main(["up", str(path), *words]) == 1
        said = capsys.readouterr()
        assert said.out == ""
        lines = said.err.splitlines()
        assert lines[0] == "error: camshaft.toml: [gateway] unknown setting 'prot'; did you mean 'port'?"
        assert len(lines) == 3
    assert main(["up", str(tmp_path / "none.toml")]) == 1
    assert "No such file; camshaft up FILE takes" in capsys.readouterr().err


def test_an_address_that_is_taken_is_said_before_anything_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = tmp_path / "camshaft.toml"
        path.write_text(FILE.format(port=1))
        assert main(["up", str(path), "--port", str(taken.getsockname()[1])]) == 1
        assert "cannot listen on 127.0.0.1:" in capsys.readouterr().err
        assert main(["up", str(path), "--port", "many"]) == 1
        assert "--port takes a whole number" in capsys.readouterr().err


def test_a_second_gateway_of_a_file_is_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """That its port is taken, or its folder, is not what to tell somebody who started the same file twice."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = tmp_path / "camshaft.toml"
    path.write_text(FILE.format(port=1))
    first = Folder(default_folder(path))
    first.announce(Running(7, "http://127.0.0.1:8001", "http://127.0.0.1:8000", str(path)))
    try:
        assert main(["up", str(path)]) == 1
    finally:
        first.close()
    assert (
        f"process 7 serves {path} already, on http://127.0.0.1:8000/v1; to change it: camshaft ctl --file {path}" in capsys.readouterr().err
    )


class Coming:
    """What `up` looks at of a fleet while it comes up."""

    def __init__(self) -> None:
        self.events = EventLog()
        self.missing: tuple[str, ...] = ()

    def become(self, *missing: str) -> None:
        self.missing = missing
        self.events.note(Happening("replica.starting", "m/v1-1", "again"))


async def test_what_is_missing_is_said_when_it_takes_long_and_when_it_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 100.0
    monkeypatch.setattr(up, "time", SimpleNamespace(monotonic=lambda: now))
    fleet = Coming()
    fleet.become("m/v1-1 is starting", "m/v2-1 is starting")
    waiting = asyncio.ensure_future(up._tell_ready(fleet, fleet.events, "http://h/v1", Path("/f.toml"), 100.0))

    async def said() -> list[str]:
        for _ in range(5):
            await asyncio.sleep(0)
        return capsys.readouterr().err.splitlines()

    assert await said() == []
    now += up.LATE_S
    fleet.become(*fleet.missing)
    assert await said() == ["warning: not ready yet: m/v1-1 is starting", "warning: not ready yet: m/v2-1 is starting"]
    fleet.become(*fleet.missing)
    assert await said() == []
    fleet.become("m/v1-1 failed and is tried again: no memory")
    assert await said() == ["warning: not ready yet: m/v1-1 failed and is tried again: no memory"]
    fleet.become()
    assert (await said())[0].startswith("ready after 5.00 s: http://h/v1")
    await waiting


class Screen(io.StringIO):
    """A terminal that tells when it was drawn on."""

    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty
        self.drawn = asyncio.Event()

    def isatty(self) -> bool:
        return self._tty

    def write(self, text: str) -> int:
        self.drawn.set()
        return super().write(text)


@pytest.mark.parametrize("tty", [True, False])
async def test_what_is_shown_of_a_fleet_is_shown_once(tty: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen(tty)
    logger = logging.getLogger("camshaft")
    for name, value in {"handlers": [], "level": logger.level, "propagate": logger.propagate}.items():
        monkeypatch.setattr(logger, name, value)  # for this test alone
    configure("info", screen)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(fleet_view, "REFRESH_S", 0.01)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    events = EventLog(logged)
    events.note(Happening("replica.ready", "small/v1-1", "warm"))
    viewing = asyncio.ensure_future(fleet_view.view(FakeFleet(), ServerConfig()))
    async with asyncio.timeout(20):
        while tty and "breaker open" not in screen.getvalue():
            screen.drawn.clear()
            await screen.drawn.wait()
        events.note(Happening("replica.gone", "small/v1-2", "killed\x1b[2J"))
    viewing.cancel()
    await asyncio.wait((viewing,))
    shown = screen.getvalue()
    assert "\x1b[2J" not in shown
    assert shown.count("event=replica.ready subject=small/v1-1 text=warm") == 1
    assert shown.count("event=replica.gone subject=small/v1-2 text=") == 1
    assert ("killed by signal 9; breaker open" in shown) == tty
