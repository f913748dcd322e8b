"""Database: the tables of a gateway's state in SQLite. Used by one thread, `state.Store`'s; every call is one short transaction."""

from __future__ import annotations

import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from camshaft.gateway.events import Happening

log = logging.getLogger(__name__)

SCHEMA = 1
MAX_BYTES = 128 << 20  # of the file; what a bound on rows does not bound
PAGE_BYTES = 4_096
MAX_EVENTS = 100_000
MAX_FILES = 20  # accepted files kept for a rollback
MAX_SNAPSHOTS = 256
PRUNE_EVERY = 1_000  # events written between two looks at how many there are
BUSY_S = 1.0  # for another process, such as a backup, to let go of the file
MAX_SET_ASIDE = 3

_TABLES = """
CREATE TABLE IF NOT EXISTS events (at INTEGER PRIMARY KEY, kind TEXT, subject TEXT, text TEXT, evidence BLOB);
CREATE TABLE IF NOT EXISTS snapshots (name TEXT PRIMARY KEY, at INTEGER, data BLOB);
CREATE TABLE IF NOT EXISTS files (at INTEGER PRIMARY KEY, revision INTEGER, author TEXT, digest TEXT, bad INTEGER, text BLOB);
"""


class Accepted(Struct, frozen=True):
    """A file that was in force. `bad`: it was rolled back."""

    revision: int
    at: float  # seconds since the epoch
    by: str
    digest: str
    bad: bool
    text: str


class Database:
    """Raises sqlite3.Error from everywhere."""

    def __init__(self, path: Path) -> None:
        self._n_since_prune = 0
        self._path = path
        self._db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
        try:
            self._prepare()
        except sqlite3.Error:
            self._db.close()
            raise
        self._inode = _inode(path)

    def is_there(self) -> bool:
        """Whether its file is still the one that was opened: what is written into one that was taken away is lost."""
        return _inode(self._path) == self._inode

    def _prepare(self) -> None:
        run = self._db.execute
        version = run("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA or run("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            why = f"has schema {version}, and this program knows {SCHEMA}" if version > SCHEMA else "is damaged"
            raise sqlite3.DatabaseError(why)
        run(f"PRAGMA page_size = {PAGE_BYTES}")
        run("PRAGMA journal_mode = WAL")
        run("PRAGMA synchronous = NORMAL")  # a crash of the machine may cost the last events, never the file
        run(f"PRAGMA max_page_count = {MAX_BYTES // PAGE_BYTES}")
        run("PRAGMA journal_size_limit = 16777216")
        if version < SCHEMA:
            self._db.executescript(_TABLES)
            run(f"PRAGMA user_version = {SCHEMA}")

    def close(self) -> None:
        with suppress(sqlite3.Error):
            self._db.close()

    # ----------------------------------------------------------------------------------------------------- events

    def write(self, happenings: Sequence[Happening], snapshots: Mapping[str, bytes], files: Sequence[Accepted] = ()) -> None:
        """All of it, or nothing."""
        rows = [(_micros(h.at), h.kind, h.subject, h.text, msgspec.json.encode(h.evidence)) for h in happenings]
        now = _micros(time.time())
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?)", rows)
            self._db.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", [(k, now, v) for k, v in snapshots.items()])
            self._db.execute(f"DELETE FROM snapshots WHERE name NOT IN (SELECT name FROM snapshots ORDER BY at DESC LIMIT {MAX_SNAPSHOTS})")
            if files:
                self._write_files(files)
            self._n_since_prune += len(rows)
            if self._n_since_prune >= PRUNE_EVERY:
                self._n_since_prune = 0
                self._keep_events(MAX_EVENTS)

    def shrink(self) -> None:
        """Make room: give the older half of the events up."""
        with self._db:
            self._keep_events(self._db.execute("SELECT count(*) FROM events").fetchone()[0] // 2)

    def _keep_events(self, n: int) -> None:
        self._db.execute(f"DELETE FROM events WHERE at <= (SELECT at FROM events ORDER BY at DESC LIMIT 1 OFFSET {n})")

    def events(self, after: float, before: float, limit: int) -> list[Happening]:
        """Between the two moments, oldest first; where there are more than `limit`, the latest of them."""
        rows = self._db.execute(
            "SELECT at, kind, subject, text, evidence FROM events WHERE at > ? AND at < ? ORDER BY at DESC LIMIT ?",
            (_micros(after), _micros(before), limit),
        ).fetchall()
        return [Happening(k, s, t, msgspec.json.decode(e), at / 1e6) for at, k, s, t, e in reversed(rows)]

    def last_at(self) -> float:
        """When the latest event was; 0 where there is none."""
        return float(self._db.execute("SELECT coalesce(max(at), 0) FROM events").fetchone()[0]) / 1e6

    # -------------------------------------------------------------------------------------------------- snapshots

    def snapshot(self, name: str) -> bytes | None:
        row = self._db.execute("SELECT data FROM snapshots WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    # ------------------------------------------------------------------------------------------------------ files

    def files(self) -> list[Accepted]:
        """Accepted files, oldest first."""
        rows = self._db.execute("SELECT at, revision, author, digest, bad, text FROM files ORDER BY at").fetchall()
        return [Accepted(rev, at / 1e6, by, digest, bool(bad), zlib.decompress(text).decode()) for at, rev, by, digest, bad, text in rows]

    def _write_files(self, files: Iterable[Accepted]) -> None:
        rows = [(_micros(f.at), f.revision, f.by, f.digest, f.bad, zlib.compress(f.text.encode())) for f in files]
        self._db.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?, ?)", rows)
        self._db.execute(f"DELETE FROM files WHERE at <= (SELECT at FROM files ORDER BY at DESC LIMIT 1 OFFSET {MAX_FILES})")


def _micros(seconds: float) -> int:
    return min(max(round(seconds * 1e6), 0), 1 << 62)


def _inode(path: Path) -> int:
    """0 where there is no file."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is at fault, rather than the disk or another process."""
    damaged = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    # An error of ours has no code: what `_prepare` found.
    code = getattr(error, "sqlite_errorcode", None)
    return code & 0xFF in damaged if code is not None else type(error) is sqlite3.DatabaseError


def set_aside(path: Path) -> Path:
    """Moves a database that cannot be used, its journal with it, out of the way. Raises OSError. Few are kept."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
    os.replace(path, aside)
    for journal in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{journal}", f"{aside}{journal}")
    older = sorted(p for p in path.parent.glob(f"{path.name}.damaged-*") if not p.name.endswith(("-wal", "-shm")))[:-MAX_SET_ASIDE]
    for old in older:
        for suffix in ("", "-wal", "-shm"):
            with suppress(OSError):
                os.unlink(f"{old}{suffix}")
    return aside
