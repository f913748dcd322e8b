"""Fills the tables of a page from bench/results, so that no figure in it was typed.

    python bench/tables.py [docs/performance.md]

A table stands between `<!-- NAME -->` and `<!-- end -->` and comes from bench/results/NAME.json. One without a result says how to get it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import harness

PLACE = re.compile(r"(<!-- (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def filled(page: str, results: Path) -> str:
    def fill(place: re.Match[str]) -> str:
        return f"{place[1]}{of_result(place[2], results)}\n{place[3]}"

    return PLACE.sub(fill, page)


def of_result(name: str, results: Path) -> str:
    path = results / f"{name}.json"
    if not path.exists():
        return f"*Not measured yet: `python bench/{name}.py`.*"
    kept = json.loads(path.read_text())
    machine = kept["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}, {machine['memory_gib']} GiB"
    return f"{where}; load average before: {kept['load_before']}; {kept['at']}.\n\n{kept['table']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("page", type=Path, nargs="?", default=PAGE)
    args = parser.parse_args()
    args.page.write_text(filled(args.page.read_text(), harness.RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
