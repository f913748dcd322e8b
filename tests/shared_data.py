"""The optional folder of real material that some tests measure against. The project commits none of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ABSENT = "shared data folder is absent"


def shared_data() -> Path | None:
    """$CAMSHAFT_SHARED_DATA, or ../shared/data beside the checkout; None where neither is there."""
    named = os.environ.get("CAMSHAFT_SHARED_DATA")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    return folder if folder.is_dir() else None


def shared_data_or_skip() -> Path:
    """The folder; skips the calling test, with the reason, where there is none."""
    folder = shared_data()
    if folder is None:
        pytest.skip(ABSENT)
    return folder
