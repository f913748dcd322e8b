"""The gateway's page agrees with the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from camshaft import errors
from camshaft.api import cors
from camshaft.cli.flags import FILE_TABLES
from camshaft.gateway import file
from camshaft.gateway.spec import LAYERED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "gateway.md").read_text(encoding="utf-8")
FILES = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("text", FILES)
def test_its_files_are_good(text: str) -> None:
    assert file.parse(text, Path("/nowhere/camshaft.toml"), {}).models


def test_its_codes_are_those_of_errors() -> None:
    rows = re.findall(r"^\| (\d{3}) \| ([^|]+) \|", PAGE, re.MULTILINE)
    assert len(rows) > 10
    known = {cls.code: cls.status for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.CamshaftError)}
    for status, codes in rows:
        for code in re.findall(r"`(\w+)`", codes):
            assert known[code] == int(status), code
    # What a gateway alone says is all there.
    for code in ("rate_limit_exceeded", "overloaded", "queue_full", "queue_timeout", "deadline_unmeetable", "circuit_open", "replica_lost"):
        assert f"`{code}`" in PAGE


def test_it_names_every_table_and_header() -> None:
    for name in LAYERED:
        assert f"`[{name}]`" in PAGE, name
    for name in re.findall(rb"x-camshaft-\w+", cors._EXPOSED):
        assert f"`{name.decode()}`" in PAGE, name
    for path in FILE_TABLES:
        assert f"[{path.replace('NAME', '').split('.')[0]}" in PAGE, path
