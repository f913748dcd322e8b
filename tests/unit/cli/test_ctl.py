"""`camshaft ctl` against a real admin API over a fleet that is only talked about."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from camshaft.api.app import App
from camshaft.api.control import create_control_app
from camshaft.cli.main import main
from camshaft.config import ServerConfig
from camshaft.gateway.admin import Admin
from camshaft.gateway.events import EventLog, Happening
from camshaft.gateway.folder import Folder, Running
from camshaft.gateway.table import FileRejected
from fleet_fake import FakeFleet, FakePast
from http_server import server


class Desk:
    """A gateway's folder and its admin API; the fleet is a fake."""

    def __init__(self, root: Path) -> None:
        self.fleet = FakeFleet()
        self.folder = Folder(root / "camshaft" / "one")
        self.url = ""

    def app(self) -> App:
        tokens = {name: self.folder.token(name) for name in ("admin", "read")}
        past = FakePast(Happening("replica.gone", "small/v1-2", "killed", {"signal": 9, "share": 0.123456789}, at=1_700_000_000.5))
        return create_control_app(Admin(self.fleet, EventLog(), past), tokens, ServerConfig())

    def announce(self, url: str) -> None:
        self.url = url
        self.folder.announce(Running(os.getpid(), url, "http://127.0.0.1:8000", "/etc/one.toml"))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    made = Desk(tmp_path)
    with server(made.app) as running:
        made.announce(running.url)
        yield made
    made.folder.close()


def ctl(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["ctl", *words])
    said = capsys.readouterr()
    return status, said.out, said.err


def test_status_shows_every_replica_and_what_is_wrong(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = ctl(capsys, "status")
    assert status == 0
    assert "/etc/camshaft.toml, revision 3, serves http://127.0.0.1:8000/v1" in out
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert "1/2 ready" in lines["small/v1"]
    by_hand = "weight 90 by hand, 50 in the file; replicas 2 by hand, 1 in the file"
    assert f"90 % of small; {by_hand}; 3 waiting (99 tokens, 0.5 s)" in lines["small/v1"]
    assert "by hand" not in lines["small/v2"]
    assert lines["v1-1"].split()[1:] == ["ready", "3s", "2", "300", "1,234", "25%", "restarted", "1", "times"]
    assert "killed by signal 9; breaker open" in lines["v1-2"]
    assert lines["ann"].split()[1:] == ["1", "2", "10", "-"]
    assert "wait for a restart of the gateway: port" in err
    _, out, _ = ctl(capsys, "status", "--json")
    assert json.loads(out)["models"][0]["name"] == "small"


CHANGES = {
    "scale small/v1 3": ("scale", "small/v1", 3),
    "drain small/v1-1": ("drain", "small/v1-1"),
    "restart small/v1-1": ("restart", "small/v1-1"),
    "weights small v1=80 v2=20": ("weights", "small", {"v1": 80, "v2": 20}),
    "reload": ("reload", False),
    "reload --force": ("reload", True),
    "rollback": ("rollback", None),
    "rollback 2": ("rollback", 2),
}


@pytest.mark.parametrize("words", CHANGES)
def test_changes(desk: Desk, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert ctl(capsys, *words.split()) == (0, f"{CHANGES[words][0]} done\n", "")
    assert desk.fleet.asked == [CHANGES[words]]
    status, out, _ = ctl(capsys, "--json", *words.split())
    assert (status, json.loads(out)["evidence"]) == (0, {"n": 2})


def test_events_and_revisions(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    ctl(capsys, "reload")
    _, out, _ = ctl(capsys, "events")
    first, second = out.splitlines()
    assert first.endswith("replica.gone small/v1-2: killed (signal=9 share=0.123457)")
    assert "admin.reload file: reload done (by=ann@" in second
    assert len(ctl(capsys, "events", "--since", "1h")[1].splitlines()) == 1
    assert len(ctl(capsys, "events", "--limit", "1")[1].splitlines()) == 1
    assert json.loads(ctl(capsys, "events", "--json", "--limit", "1")[1])["kind"] == "admin.reload"
    assert "--since takes a time ago" in ctl(capsys, "events", "--since", "yesterday")[2]
    _, out, _ = ctl(capsys, "rollback", "--list")
    assert [line.split()[-1] for line in out.splitlines()[1:]] == ["start", "back", "force"]
    assert desk.fleet.asked == [("reload", False)]


def test_refusals_are_one_line_that_says_why(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert ctl(capsys, "scale", "none/v1", "2") == (1, "", "error: there is no version none/v1; there are small/v1\n")
    assert "expected an integer <= 1000000" in ctl(capsys, "weights", "small", "v1=99999999")[2]
    assert "not VERSION=WEIGHT" in ctl(capsys, "weights", "small", "v1:9")[2]
    desk.fleet.fails = FileRejected("camshaft.toml", ["[models] is empty"])
    assert ctl(capsys, "reload") == (1, "", "error: camshaft.toml: [models] is empty\n")


def test_where_it_looks(desk: Desk, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    state = str(desk.folder.path)
    (tmp_path / "one.toml").write_text(f'[gateway]\nstate_dir = "{state}"\nunknown = ')
    (tmp_path / "two.toml").write_text(f'[gateway]\nstate_dir = "{state}"\n')
    token = str(desk.folder.path / "read.token")
    for words in (["--state-dir", state], ["--file", "two.toml"], ["--address", desk.url, "--token-file", token]):
        assert ctl(capsys, *words, "status")[0] == 0, words
        assert ctl(capsys, "status", *words)[0] == 0, words
    status, _, err = ctl(capsys, "--address", desk.url, "--token-file", token, "reload")
    assert (status, err) == (1, "error: this token may look and not change; use the one in admin.token\n")
    wrong = tmp_path / "wrong.token"
    wrong.write_text("sk-ann\n")
    err = ctl(capsys, "--address", desk.url, "--token-file", str(wrong), "status")[2]
    assert err.startswith("error: this admin token is not known here; the gateway's own are admin.token and read.token")
    assert "needs --token-file" in ctl(capsys, "--address", desk.url, "status")[2]
    # A file that cannot be read names no folder, and its own one has no gateway.
    assert "no gateway runs from" in ctl(capsys, "--file", "one.toml", "status")[2]
    other = Folder(tmp_path / "camshaft" / "two")
    other.announce(Running(1, desk.url, "", "/etc/two.toml"))
    err = ctl(capsys, "status")[2]
    assert "several gateways run here" in err
    assert "/etc/two.toml" in err
    other.close()


def test_when_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert ctl(capsys, "status") == (1, "", "error: no gateway runs here; start one with camshaft up FILE, or name its file with --file\n")
    (tmp_path / "t.token").write_text("a token\n")
    err = ctl(capsys, "--address", "http://127.0.0.1:9", "--token-file", "t.token", "status")[2]
    assert "no gateway answers at http://127.0.0.1:9: Connection refused" in err
    assert "is no address" in ctl(capsys, "--address", "ftp://a", "--token-file", "t.token", "status")[2]


def test_a_key_and_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    made = json.loads(ctl(capsys, "key", "--json")[1])
    assert made["digest"] == f"sha256:{hashlib.sha256(made['key'].encode()).hexdigest()}"
    assert made["key"] not in ctl(capsys, "key")[1]
