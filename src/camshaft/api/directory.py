"""Directory: which models there are for whom, and which version of one answers a caller."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from camshaft.api.auth import Keys
from camshaft.api.served import ServedModel
from camshaft.config import suggest
from camshaft.errors import ConfigError, UnknownModel


class Caller(NamedTuple):
    """Who asks, as far as the choice of a version may depend on it."""

    tenant: str = ""
    session: str = ""  # from the header or the body
    version: str = ""  # asked for by header, which only testers may
    opening: str = ""  # how the conversation began: it stays what it was from turn to turn
    id: str = ""  # of this call, for those who have nothing that lasts


class Directory(Protocol):
    """Asked once for each call. Its answers may differ from one call to the next."""

    @property
    def keys(self) -> Keys:
        """Who may ask at all."""
        ...

    def models(self, tenant: str) -> Sequence[ServedModel]:
        """What this tenant may ask for, each model once."""
        ...

    def model(self, name: str | None, caller: Caller, passed: Collection[str] = ()) -> ServedModel:
        """Who answers; without a name, the default. `passed`: models that could not, so that a fallback is wanted.

        Raises UnknownModel and Forbidden.
        """
        ...

    def can_fall_back(self, tenant: str, passed: Collection[str]) -> bool:
        """Whether there is another model that this tenant may ask, where those of `passed` could not serve it."""
        ...

    def headers(self, tenant: str) -> Mapping[bytes, bytes]:
        """What this tenant is told with each answer to a request for work: what is left of its limits."""
        ...


class FixedModels:
    """The same models for everybody, as long as the server lives."""

    def __init__(self, models: Sequence[ServedModel], keys: Keys | None = None) -> None:
        """Raises ConfigError for two models of one name, and for none at all."""
        self._models = {m.name: m for m in models}
        if len(self._models) != len(models) or not models:
            raise ConfigError("each served model needs a name of its own, and there must be one at least")
        self.keys = keys if keys is not None else Keys()

    def models(self, tenant: str) -> Sequence[ServedModel]:
        return tuple(self._models.values())

    def model(self, name: str | None, caller: Caller, passed: Collection[str] = ()) -> ServedModel:
        if name is None:
            return next(iter(self._models.values()))
        found = self._models.get(name)
        if found is None:
            raise unknown_model(name, self._models)
        return found

    def can_fall_back(self, tenant: str, passed: Collection[str]) -> bool:
        return False

    def headers(self, tenant: str) -> Mapping[bytes, bytes]:
        return {}


def unknown_model(name: str, known: Collection[str]) -> UnknownModel:
    """What to tell a client that asks for a model that is not there."""
    return UnknownModel(f"the model {name[:100]!r} is not served here{suggest(name, known)}; see /v1/models", param="model")
