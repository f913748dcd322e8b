"""The size of a folder that another process is writing to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from camshaft.formats import child


def test_files_are_counted_and_links_are_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one").write_bytes(bytes(5))
    (tmp_path / "two").write_bytes(bytes(7))
    (tmp_path / "link").symlink_to(tmp_path / "two")
    assert child.tree_bytes(tmp_path) == 12


def test_folders_and_files_that_vanish_meanwhile_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_bytes(bytes(3))
    (tmp_path / "gone").write_bytes(bytes(5))
    (tmp_path / "unpack").mkdir()
    listed = os.scandir

    def then_removed(path: str) -> Any:
        return _Removing(listed(path), tmp_path) if Path(path) == tmp_path else listed(path)

    monkeypatch.setattr(os, "scandir", then_removed)
    assert child.tree_bytes(tmp_path) == 3


class _Removing:
    """A listing after which some of what it named is no longer there."""

    def __init__(self, entries: Any, folder: Path) -> None:
        self._entries = list(entries)
        (folder / "unpack").rmdir()
        (folder / "gone").unlink()

    def __enter__(self) -> _Removing:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if not self._entries:
            raise StopIteration
        return self._entries.pop(0)
