"""The documentation agrees with the code, and its links lead somewhere."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from camshaft.cli import flags
from camshaft.cli.main import NAMES, build_parser, find, parse
from camshaft.config import EngineConfig, ServerConfig, flag
from camshaft.gateway.gauges import gauges
from camshaft.observe.gateway import GatewayMetrics, Trip
from camshaft.observe.metrics import Metrics
from camshaft.observe.spans import spans_of

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def sub_parser(name: str) -> argparse.ArgumentParser:
    (action,) = (a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    found = action.choices[name]
    assert isinstance(found, argparse.ArgumentParser)
    return found


def anchors(page: Path) -> set[str]:
    """The fragments that a page's headings have on the usual forges."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{page.name} links to {target}, which does not exist"
        assert not fragment or fragment in anchors(there), f"{page.name} links to {target}, which has no such heading"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_pages_name_exist(page: Path) -> None:
    for name in re.findall(r"`((?:docs|native|src|tests|examples)/[\w./-]+|bench/[\w-]+\.py)`", page.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), f"{page.name} speaks of {name}, which does not exist"


def test_the_flag_reference_is_the_one_that_make_docs_writes() -> None:
    assert (ROOT / "docs" / "flags.md").read_text(encoding="utf-8") == flags.page(), "run make docs"


@pytest.mark.parametrize("section", [EngineConfig, ServerConfig])
def test_serve_help_shows_every_setting(section: type) -> None:
    shown = sub_parser("serve").format_help()
    for f in dataclasses.fields(section):
        assert re.search(rf"{flag(f.name)}\b", shown), f.name


def test_examples_in_help_and_commands_in_the_readme_parse() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```sh\n(.*?)```", readme, re.DOTALL) for line in block.splitlines()]
    lines += [re.sub(r"^.*\| | < .*$", "", example) for command in map(find, NAMES) for example in command.examples]
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("camshaft ")]
    assert len(commands) > 10
    for words in commands:
        parse(words[1:])


def test_the_architecture_page_names_every_metric() -> None:
    for family in Metrics().families:
        name = family.name.removeprefix("camshaft_").removesuffix("_total")
        assert re.search(rf"`{name}(_total)?[`{{]", ARCHITECTURE), family.name


def test_the_page_on_observability_names_every_number_and_attribute_of_a_gateway() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    trip = Trip("m", "v", "m/v-1", "t", "r", "chat", 0.0, 0.1, 0.2, 1.0, 2, 1, 3, "stop", n_choices=2)
    attributes = {name for span in spans_of(trip) for name in span.attributes}
    families = {family.name for family in GatewayMetrics().families}
    families |= {line.split()[2] for line in gauges((), 0.0) if line.startswith("# TYPE")}
    for name in attributes | families:
        assert f"`{name}`" in page, f"{name} is missing"
    named = set(re.findall(r"`((?:gen_ai|camshaft)\.[\w.]+|camshaft_gateway_\w+)`", page))
    assert named <= attributes | families, named - attributes - families
