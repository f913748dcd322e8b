"""What survives a restart; and that no state of the disk holds the gateway up."""

from __future__ import annotations

import asyncio
import queue
import resource
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from camshaft.errors import Unavailable
from camshaft.gateway import database, state
from camshaft.gateway.database import Accepted, Database
from camshaft.gateway.events import Happening
from camshaft.gateway.state import Store


def happening(i: int) -> Happening:
    return Happening("test.noted", f"s{i}", f"number {i}", {"i": i, "share": 0.5, "why": None}, at=1_000.0 + i / 1e6)


class Told:
    """Hears of trouble and of its end."""

    def __init__(self) -> None:
        self.heard: queue.Queue[str] = queue.Queue()

    def __call__(self, trouble: str) -> None:
        self.heard.put(trouble)

    async def next(self) -> str:
        return await asyncio.to_thread(self.heard.get, True, 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


async def test_events_snapshots_and_files_survive(path: Path) -> None:
    store = Store(path)
    noted = [happening(i) for i in range(2 * state.BATCH + 3)]
    for one in noted:
        store.note(one)
    store.keep("weights", {"m": [1, 2]})
    store.keep("weights", {"m": [3, 4]})
    file = Accepted(1, 5.0, "start", "d1", False, "a = 1")
    store.keep_file(file)
    store.keep_file(replace(file, bad=True))
    await store.close()
    again = Store(path)
    assert await again.events(limit=10_000) == noted
    assert await again.events(after=noted[-3].at) == noted[-2:]
    assert await again.events(before=noted[5].at, limit=2) == noted[3:5]
    assert await again.last_at() == noted[-1].at
    assert await again.recall("weights") == {"m": [3, 4]}
    assert await again.recall("nothing") is None
    assert await again.files() == [replace(file, bad=True)]
    assert again.trouble == ""
    await again.close()


def test_accepted_files_are_kept_for_a_while(path: Path) -> None:
    db = Database(path)
    for i in range(3 * database.MAX_FILES):
        db.write([], {}, [Accepted(i, float(i), "me", f"d{i}", False, f"v = {i}")])
    assert [f.revision for f in db.files()] == list(range(2 * database.MAX_FILES, 3 * database.MAX_FILES))
    db.close()


def test_events_are_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "MAX_EVENTS", 100)
    monkeypatch.setattr(database, "PRUNE_EVERY", 50)
    db = Database(path)
    for i in range(0, 1_000, 10):
        db.write([happening(j) for j in range(i, i + 10)], {})
    found = db.events(0, 1e12, 10_000)
    assert 100 <= len(found) <= 150
    assert found[-1] == happening(999)
    db.shrink()
    assert len(db.events(0, 1e12, 10_000)) == len(found) // 2
    db.close()


async def test_a_locked_database_is_written_when_it_is_free_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.01)
    Database(path).close()
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    told = Told()
    store = Store(path, told=told)
    for i in range(10):
        store.note(happening(i))
    assert "locked" in await told.next()
    # What was written before can be read all the while.
    assert await store.events() == []
    assert "locked" in store.trouble
    other.execute("ROLLBACK")
    other.close()
    assert await told.next() == ""
    assert len(await store.events()) == 10
    await store.close()


async def test_a_full_disk_loses_nothing_that_memory_holds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "MAX_WAITING", 50)
    Database(path).close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The kernel refuses to let any file of this process grow: what a full disk does, to SQLite's eyes.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        told = Told()
        store = Store(path, told=told)
        for i in range(60):
            store.note(happening(i))
        store.keep("weights", [1])
        assert await told.next()
        for i in range(60, 70):
            store.note(happening(i))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert await told.next() == ""
    assert await store.events() == [happening(i) for i in range(20, 70)]
    assert await store.recall("weights") == [1]
    assert store.metrics.lost.child().value == 20
    assert store.metrics.failures.child().value >= 1
    await store.close()


def spoil(path: Path, damage: str) -> None:
    whole = path.read_bytes()
    path.write_bytes(b"no database at all" * 500 if damage == "text" else whole[:8192] + b"\xff" * 8192 + whole[16384:])


@pytest.mark.parametrize("damage", ["text", "middle", "newer"])
async def test_a_damaged_database_is_set_aside_and_a_new_one_begun(path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(path)
    for i in range(500):
        store.note(happening(i))
    await store.close()
    if damage == "newer":
        db = sqlite3.connect(path)
        db.execute("PRAGMA user_version = 999")
        db.close()
    else:
        spoil(path, damage)
    told = Told()
    again = Store(path, told=told)
    again.note(happening(1))
    assert await told.next()
    assert await told.next() == ""
    assert await again.events() == [happening(1)]
    assert len(list(path.parent.glob("state.db.damaged-*"))) == 1
    assert "a new one is begun" in caplog.text
    await again.close()


async def test_one_that_is_taken_away_while_it_is_open_is_begun_anew_with_the_files(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Somebody deletes the database of a gateway that runs, which goes on writing into a file without a name."""
    store = Store(path)
    file = Accepted(1, 5.0, "start", "d1", False, "a = 1")
    store.keep_file(file)
    store.note(happening(1))
    assert await store.files() == [file]
    await asyncio.to_thread(path.unlink)
    store.note(happening(2))
    assert await store.events() == [happening(2)]
    await store.close()
    assert "taken away" in caplog.text
    again = Store(path)
    assert await again.files() == [file]
    await again.close()


def test_few_damaged_ones_are_kept(path: Path) -> None:
    for i in range(database.MAX_SET_ASIDE + 3):
        path.with_name(f"state.db.damaged-2026010{i}-000000").touch()
        path.with_name(f"state.db.damaged-2026010{i}-000000-wal").touch()
    path.touch()
    aside = database.set_aside(path)
    left = sorted(path.parent.glob("state.db.damaged-*"))
    assert aside in left
    assert len([p for p in left if not p.name.endswith("-wal")]) == database.MAX_SET_ASIDE


async def test_a_folder_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "no" / "such" / "folder" / "state.db")
    store.note(happening(1))
    store.keep("weights", [1])
    with pytest.raises(Unavailable, match="unable to open"):
        await store.events()
    assert "unable to open" in store.trouble
    await store.close()
    with pytest.raises(Unavailable):
        await store.events()


async def test_closing_writes_what_waits(path: Path) -> None:
    store = Store(path)
    for i in range(2_000):
        store.note(happening(i))
    await store.close()
    db = Database(path)
    assert len(db.events(0, 1e12, 10_000)) == 2_000
    db.close()
