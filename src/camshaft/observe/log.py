"""Log lines: `key=value` pairs that a person reads and a program parses, one line each whatever a client sent."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TextIO

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/+@,[]")
MAX_VALUE_CHARS = 256


def line(pairs: Mapping[str, object]) -> str:
    """`a=1 b="two words"`. None is left out; control characters are escaped, so that no value can forge a second line."""
    return " ".join(f"{key}={_value(value)}" for key, value in pairs.items() if value is not None)


def configure(level: str, stream: TextIO) -> None:
    """Send this process's log to `stream`. Called once, by the command line; a library leaves handlers alone."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger("camshaft")
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    root.propagate = False


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)[:MAX_VALUE_CHARS]
    # json.dumps escapes controls, quotes and everything beyond ASCII, line separators included.
    return text if text and _PLAIN.issuperset(text) else json.dumps(text)
