"""A digest is remembered for exactly as long as the files are the same."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from camshaft.formats import digest


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMSHAFT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digest, "SMALL_BYTES", 0)
    monkeypatch.setattr(digest, "_SETTLED_NS", -10_000_000_000)  # these files have only just been written


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def record(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache" / "digests").iterdir()
    return path


def test_it_is_the_sha256_of_all_files_together_and_is_known_from_then_on(tmp_path: Path) -> None:
    files = [written(tmp_path / "a", b"one"), written(tmp_path / "b", b"two")]
    assert digest.known(files) is None
    assert digest.sha256(files) == digest.known(files) == hashlib.sha256(b"onetwo").hexdigest()
    assert digest.known(files[:1]) is None


def test_what_is_remembered_is_not_read_again(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"content")
    digest.remember([file], "f" * 64)
    assert digest.sha256([file]) == "f" * 64


def test_a_file_written_in_place_is_read_anew_even_if_its_write_time_is_set_back(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"before")
    digest.sha256([file])
    times = file.stat()
    with file.open("r+b") as out:
        out.write(b"after!")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert digest.sha256([file]) == hashlib.sha256(b"after!").hexdigest()


def test_a_replaced_file_is_read_anew(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"before")
    digest.sha256([file])
    times = file.stat()
    other = written(tmp_path / "b", b"after!")
    os.utime(other, ns=(times.st_atime_ns, times.st_mtime_ns))
    other.replace(file)
    assert digest.sha256([file]) == hashlib.sha256(b"after!").hexdigest()


def test_a_file_that_was_changed_a_moment_ago_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_SETTLED_NS", 3_600_000_000_000)
    file = written(tmp_path / "a", b"content")
    assert digest.sha256([file]) == hashlib.sha256(b"content").hexdigest()
    assert digest.known([file]) is None


def test_small_files_leave_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "SMALL_BYTES", 100)
    digest.sha256([written(tmp_path / "a", b"content")])
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"stamps":[],"sha256":1}', b"\xff\xfe"])
def test_a_damaged_record_counts_for_nothing(tmp_path: Path, damage: bytes) -> None:
    file = written(tmp_path / "a", b"content")
    digest.remember([file], "f" * 64)
    record(tmp_path).write_bytes(damage)
    assert digest.sha256([file]) == hashlib.sha256(b"content").hexdigest()


def test_a_record_that_others_can_write_to_counts_for_nothing(tmp_path: Path) -> None:
    file = written(tmp_path / "a", b"content")
    digest.remember([file], "f" * 64)
    record(tmp_path).chmod(0o666)
    assert digest.sha256([file]) == hashlib.sha256(b"content").hexdigest()


def test_without_a_place_to_write_nothing_is_remembered_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAMSHAFT_CACHE", str(written(tmp_path / "no-folder", b"")))
    file = written(tmp_path / "a", b"content")
    assert digest.sha256([file]) == hashlib.sha256(b"content").hexdigest()
    assert digest.known([file]) is None
