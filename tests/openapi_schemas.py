"""OpenAI's own description of its answers, as JSON schemas to check ours against.

The file is 3 MB of YAML, which takes seconds to load whole; the few schemas that are needed are cut out of its text.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

_PREFIX = "#/components/schemas/"


@cache
def _blocks(path: Path) -> dict[str, str]:
    text = path.read_text()
    start = text.index("\n  schemas:\n")
    heads = list(re.finditer(r"^    (\w+):$", text[start:], re.MULTILINE))
    ends = [h.start() for h in heads[1:]] + [len(text) - start]
    return {h[1]: text[start + h.start() : start + end] for h, end in zip(heads, ends, strict=True)}


def _nullable(node: Any) -> Any:
    """`nullable: true`, which 3.1 no longer has but the file still uses, as a type."""
    if isinstance(node, list):
        return [_nullable(n) for n in node]
    if not isinstance(node, dict):
        return node
    made = {k: _nullable(v) for k, v in node.items() if k != "nullable"}
    return {"anyOf": [made, {"type": "null"}]} if node.get("nullable") is True else made


@cache
def validator(path: Path, name: str) -> Draft202012Validator:
    """For the schema `name` and all that it refers to."""
    blocks = _blocks(path)
    found: dict[str, Any] = {}
    todo = [name]
    while todo:
        current = todo.pop()
        if current not in found:
            loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
            found[current] = _nullable(yaml.load(blocks[current], loader)[current])
            todo += re.findall(rf'"{_PREFIX}(\w+)"', json.dumps(found[current]))
    return Draft202012Validator({"$ref": _PREFIX + name, "components": {"schemas": found}})


def problems(path: Path, name: str, value: Any) -> set[str]:
    """What is wrong with `value`: `place: message`, with indexes as `*`."""
    return {
        ".".join("*" if isinstance(p, int) else str(p) for p in error.absolute_path) + ": " + error.message[:120]
        for error in validator(path, name).iter_errors(value)
    }
