"""Model: a name that clients ask for, its versions, and which of them answers whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from camshaft.errors import Unavailable
from camshaft.gateway.spec import ModelSpec
from camshaft.gateway.split import Split, Sticky
from camshaft.gateway.version import Version


class Model:
    """Versions come and go by reload; whoever has one keeps it to the end of its request."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.versions: dict[str, Version] = {}
        self.weights = _weights(spec)
        self._split = Split(self.weights, _tenants(spec), salt=spec.name)

    def choose(self, sticky: Sticky, forced: str = "") -> Version:
        """Whose turn this caller is. Raises BadRequest for a forced one that there is not, Unavailable where there is none at all.

        Where the chosen version has no replica left and none on its way, the one with the largest share that has answers: a sticky caller
        would rather change its version than go away.
        """
        name = self._split.choose(sticky, forced)
        chosen = self.versions.get(name)
        if chosen is not None and (forced or chosen.lives):
            return chosen
        living = [v for v in self.versions.values() if v.lives]
        if not living and chosen is None:
            raise Unavailable(f"no version of {self.spec.name} is there yet; ask again", retry_after_s=1.0)
        return max(living, key=lambda v: self.weights.get(v.spec.name, 0)) if living else chosen or next(iter(self.versions.values()))

    def reweigh(self, weights: Mapping[str, int]) -> int:
        """New shares. Returns how many of 10,000 buckets moved. Raises ConfigError, changing nothing."""
        moved = self._split.reweigh(weights, _tenants(self.spec))
        self.weights = dict(weights)
        return moved

    def respec(self, spec: ModelSpec) -> None:
        """What a new file says of it. Shares that were changed by hand stand until a file says others."""
        same = _weights(spec) == _weights(self.spec)
        self.spec = spec
        self.reweigh(self.weights if same else _weights(spec))

    def snapshot(self) -> dict[str, Any]:
        return {"split": self._split.snapshot(), "weights": self.weights, "of_file": _weights(self.spec)}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Shares that were changed by hand stand until the file says others."""
        if saved.get("of_file") == _weights(self.spec):
            self.weights = dict(saved.get("weights", self.weights))
        self._split.restore(saved.get("split", {}), self.weights, _tenants(self.spec))


def _weights(spec: ModelSpec) -> dict[str, int]:
    return {version.name: version.config.weight for version in spec.versions}


def _tenants(spec: ModelSpec) -> dict[str, dict[str, int]]:
    """Tenants with shares of their own."""
    named = {tenant for version in spec.versions for tenant, _ in version.tenants}
    return {tenant: dict(spec.weights(tenant)) for tenant in sorted(named)}
