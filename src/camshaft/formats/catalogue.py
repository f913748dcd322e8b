"""The models that can be had by name, read from catalogue.toml."""

from __future__ import annotations

from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

DEFAULT = "smollm2-135m"


class License(Struct, frozen=True, forbid_unknown_fields=True):
    """`notice` is shown before the model is fetched."""

    id: str
    url: str
    notice: str = ""


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A file inside a wheel on PyPI."""

    package: str
    version: str
    member: str


class Entry(Struct, frozen=True, forbid_unknown_fields=True):
    """A model: what it is, where its parts are, and what they must add up to."""

    name: str
    title: str
    file: str
    bytes: int
    sha256: str
    license: License
    parts: tuple[Part, ...]


class _Catalogue(Struct, frozen=True, forbid_unknown_fields=True):
    model: tuple[Entry, ...]


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the file."""
    text = resources.files("camshaft.formats").joinpath("catalogue.toml").read_text()
    return msgspec.toml.decode(text, type=_Catalogue).model


def find(name: str) -> Entry | None:
    """The entry of this name."""
    return next((entry for entry in entries() if entry.name == name), None)
