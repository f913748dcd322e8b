"""The folder of a gateway's state: private, locked, and found by who looks for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from camshaft.errors import ConfigError
from camshaft.gateway import folder
from camshaft.gateway.folder import Folder, Running

RUNNING = Running(os.getpid(), "http://127.0.0.1:1", "http://127.0.0.1:2", "camshaft.toml")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_it_is_made_private_and_so_are_its_tokens(tmp_path: Path) -> None:
    path = tmp_path / "a" / "state"
    opened = Folder(path)
    token = opened.token("admin")
    assert (mode(path), mode(path / "admin.token")) == (0o700, 0o600)
    assert len(token) > 40
    assert opened.token("admin") == token == folder.read_token(path / "admin.token")
    assert opened.token("read") != token
    opened.close()
    opened.close()
    path.chmod(0o755)
    again = Folder(path)
    assert mode(path) == 0o700
    assert again.token("admin") == token
    again.close()


def test_a_token_that_others_could_read_is_replaced(tmp_path: Path) -> None:
    opened = Folder(tmp_path)
    token = opened.token("admin")
    (tmp_path / "admin.token").chmod(0o644)
    assert opened.token("admin") != token
    assert mode(tmp_path / "admin.token") == 0o600
    opened.close()


def test_it_serves_one_gateway_at_a_time_and_says_which(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    with pytest.raises(ConfigError, match="another gateway uses it"):
        Folder(tmp_path)
    first.announce(RUNNING)
    with pytest.raises(ConfigError, match=f"process {os.getpid()} serves camshaft.toml"):
        Folder(tmp_path)
    assert folder.running(tmp_path) == RUNNING
    first.close()
    assert folder.running(tmp_path) is None
    Folder(tmp_path).close()


def test_one_that_was_killed_is_not_taken_for_the_one_that_starts(tmp_path: Path) -> None:
    killed = Folder(tmp_path)
    killed.announce(RUNNING)
    left = (tmp_path / "running.json").read_bytes()
    killed.close()
    (tmp_path / "running.json").write_bytes(left)
    starting = Folder(tmp_path)
    assert folder.running(tmp_path) is None
    starting.close()


def test_who_was_killed_does_not_run(tmp_path: Path) -> None:
    first = Folder(tmp_path)
    first.announce(RUNNING)
    left = (tmp_path / "running.json").read_bytes()
    first.close()
    (tmp_path / "running.json").write_bytes(left)
    assert folder.running(tmp_path) is None
    assert folder.running(tmp_path / "nothing") is None


def test_errors_name_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="give one that can be written"):
        Folder(tmp_path / "file" / "state")
    with pytest.raises(ConfigError, match="there is no token"):
        folder.read_token(tmp_path / "admin.token")


def test_each_file_has_a_folder_of_its_own(tmp_path: Path) -> None:
    env = {"XDG_STATE_HOME": "/state"}
    one, two = (folder.default_folder(Path(p), env) for p in ("/a/camshaft.toml", "/b/camshaft.toml"))
    assert one != two
    assert one.parent == two.parent == Path("/state/camshaft")
    assert one.name.startswith("camshaft-")
