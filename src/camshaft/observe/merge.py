"""Merge: the numbers of several processes on one page, each series with labels that say whose it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

MAX_LINES = 200_000
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]*)(?:\{(.*)\})?\s+(\S+(?:\s+\S+)?)\s*\Z")
_SUFFIXES = ("_bucket", "_count", "_sum", "_total", "_created")


Page = tuple[Mapping[str, str], bytes]  # labels to add, and the text


def merged(pages: Iterable[Page]) -> bytes:
    """Pages in Prometheus' text format as one: each family once, with its series together. `labels` are added to every series of a page.

    What is not in the format is left out: one broken page must not cost the others. A label that a page has already keeps its
    own value; ours comes under `exported_` and its name, as Prometheus does it.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    n = 0
    for labels, page in pages:
        for line in page.decode("utf-8", "replace").splitlines():
            n += 1
            if n > MAX_LINES:
                break
            if line.startswith("#"):
                words = line.split(" ", 3)
                if len(words) >= 3 and words[1] in ("HELP", "TYPE"):
                    head = heads.setdefault(words[2], [])
                    if not any(known.startswith(f"# {words[1]} ") for known in head):
                        head.append(line)
                continue
            found = _SAMPLE.match(line)
            if found is not None:
                name, own, value = found.groups()
                samples.setdefault(_family(name, heads), []).append(f"{name}{{{_joined(own or '', labels)}}} {value}")
    lines = [line for family, series in samples.items() for line in (*heads.get(family, ()), *series)]
    return ("\n".join(lines) + "\n").encode() if lines else b""


def _family(name: str, heads: Mapping[str, list[str]]) -> str:
    """A histogram's series are named after it with a suffix."""
    if name in heads:
        return name
    return next((short for suffix in _SUFFIXES if (short := name.removesuffix(suffix)) != name and short in heads), name)


def _joined(own: str, labels: Mapping[str, str]) -> str:
    taken = {pair.partition("=")[0].strip().lstrip(",") for pair in re.split(r'(?<="),', own)}
    ours = [f'{"exported_" if name in taken else ""}{name}="{_escaped(value)}"' for name, value in labels.items()]
    return ",".join([*ours, own.rstrip(", ")] if own.strip() else ours)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
