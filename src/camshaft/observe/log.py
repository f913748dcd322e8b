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


class Pairs:
    """What a line says, for either format."""

    def __init__(self, pairs: Mapping[str, object]) -> None:
        self.pairs = pairs

    def __str__(self) -> str:
        return line(self.pairs)


class JsonFormatter(logging.Formatter):
    """One object a line: time (seconds since the epoch), level, logger, and either the pairs or a message."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {"at": round(record.created, 3), "level": record.levelname.lower(), "logger": record.name}
        args = record.args
        if isinstance(args, tuple) and len(args) == 1 and isinstance(args[0], Pairs):
            said |= {key: value for key, value in args[0].pairs.items() if value is not None}
        else:
            said["message"] = record.getMessage()
        if record.exc_info:
            said["trace"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def configure(level: str, stream: TextIO, form: str = "text") -> None:
    """Send this process's log to `stream`, as `text` or `json`. Called once, by the command line; a library leaves handlers alone."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
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
