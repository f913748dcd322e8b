"""Fills the tables of pages from bench/results, so that no figure in them was typed.

    python bench/tables.py [PAGE ...]

A table stands between `<!-- NAME -->` and `<!-- end -->` and comes from bench/results/NAME.json, or from the newest DATE-NAME.json; with
`<!-- NAME: PART -->` it is another table of that result. One without a result says how to get it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path

import harness

PLACE = re.compile(r"(<!-- (\w+)(?:: (\w+))? -->\n).*?(<!-- end -->)", re.DOTALL)
ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *(ROOT / "docs" / f"{page}.md" for page in ("performance", "gateway", "routing")))


def filled(page: str, results: Path) -> str:
    def fill(place: re.Match[str]) -> str:
        return f"{place[1]}{of_result(place[2], place[3] or '', results)}\n{place[4]}"

    return PLACE.sub(fill, page)


def of_result(name: str, part: str, results: Path) -> str:
    dated = sorted(results.glob(f"????-??-??-{name}.json"))
    path = dated[-1] if dated else results / f"{name}.json"
    if not path.exists():
        return f"*Not measured yet: `python bench/{name}.py`.*"
    kept = json.loads(path.read_text())
    machine = kept["machine"]
    where = f"{machine['cpu']}, {machine['cores']} cores, {machine['isa']}, {machine['memory_gib']} GiB"
    against = "".join(f"; {peer}: {version}" for peer, version in kept.get("versions", {}).items())
    table = kept["tables"][part] if part else kept["table"]
    return f"{where}; load average before: {kept['load_before']}; {kept['at']}{against}.\n\n{table}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="*", default=list(PAGES))
    for page in parser.parse_args().pages:
        page.write_text(filled(page.read_text(), harness.RESULTS))
    return 0


if __name__ == "__main__":
    sys.exit(main())
