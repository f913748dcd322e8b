"""Small JSON files beside a model's weights, read with a bound and decoded into strict records."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from camshaft.errors import ModelError

T = TypeVar("T")

MAX_BYTES = 32 << 20


def read_text(path: Path, limit: int = MAX_BYTES) -> str:
    """The file as text. Raises ModelError when it is too large, unreadable or not UTF-8."""
    try:
        with path.open("rb") as file:
            raw = file.read(limit + 1)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    if len(raw) > limit:
        raise ModelError(f"{path} is larger than {limit:,} bytes, which no such file is")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ModelError(f"{path} is not UTF-8 text") from None


def read_json(path: Path, kind: type[T]) -> T:
    """The file as a record of `kind`; keys that the record lacks are ignored. Raises ModelError naming file and field."""
    try:
        return msgspec.json.decode(read_text(path), type=kind)
    except RecursionError:
        raise ModelError(f"{path}: JSON nested too deeply") from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ModelError(f"{path}: {error}") from None
