"""Bodies of the admin API, read and written by its server and by `camshaft ctl`. Unknown fields are errors."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Weight = Annotated[int, Meta(ge=0, le=1_000_000)]


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    version: Name  # MODEL/VERSION
    replicas: Annotated[int, Meta(ge=0, le=256)]


class Replica(Struct, frozen=True, forbid_unknown_fields=True):
    """What drain and restart take."""

    replica: Name


class Weights(Struct, frozen=True, forbid_unknown_fields=True):
    model: Name
    weights: Annotated[dict[str, Weight], Meta(min_length=1, max_length=16)]


class Reload(Struct, frozen=True, forbid_unknown_fields=True):
    force: bool = False


class Rollback(Struct, frozen=True, forbid_unknown_fields=True):
    revision: Annotated[int, Meta(ge=1)] | None = None
