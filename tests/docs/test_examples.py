"""The examples are short, whole, and run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import camshaft

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SAYS = {
    "chat.py": "Paris",
    "generate.py": "tok/s",
    "openai_client.py": "prompt tokens cached",
    "perplexity.py": "least expected",
    "structured.py": "'country': 'Germany'",
    "tenants.py": "nightly, base: 403 forbidden\nsomebody else: 401 invalid_api_key",
    "versions.py": "who had v2 kept it: True",
}


def test_each_fits_a_screen() -> None:
    assert [path.name for path in EXAMPLES] == sorted(SAYS)
    for path in EXAMPLES:
        source = path.read_text(encoding="utf-8")
        assert len(source.splitlines()) <= 60, path.name
        compile(source, path.name, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_it_runs_and_says_what_it_should(path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(Path(camshaft.__file__).parents[1])}
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert SAYS[path.name] in done.stdout
