"""FleetDirectory: a gateway's models as the edge sees them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

from camshaft.api.auth import Keys
from camshaft.api.directory import Caller, unknown_model
from camshaft.api.foreign import foreign_model
from camshaft.api.served import ServedModel
from camshaft.errors import UnknownModel
from camshaft.gateway.fleet import Asked, Fleet
from camshaft.gateway.limit import Limiter
from camshaft.gateway.split import Sticky
from camshaft.gateway.version import Version
from camshaft.types import Clock


class FleetDirectory:
    """Implements directory.Directory. `keys` is replaced with each reload."""

    def __init__(self, fleet: Fleet, limiter: Limiter, keys: Keys, clock: Clock) -> None:
        self.keys = keys
        self._fleet = fleet
        self._limiter = limiter
        self._clock = clock
        self._created = int(time.time())

    def models(self, tenant: str) -> Sequence[ServedModel]:
        return [self._served(model.choose(Sticky(tenant=tenant))) for model in self._fleet.models_for(tenant)]

    def model(self, name: str | None, caller: Caller, passed: Collection[str] = ()) -> ServedModel:
        if passed:
            name = self._fleet.fallback(caller.tenant, passed)
        sticky = Sticky(caller.session, "", caller.tenant, caller.opening, caller.id)
        try:
            return self._served(self._fleet.choose(Asked(name, sticky, "" if passed else caller.version)))
        except UnknownModel:
            raise unknown_model(name or "", [m.name for m in self.models(caller.tenant)]) from None

    def can_fall_back(self, tenant: str, passed: Collection[str]) -> bool:
        return bool(self._fleet.fallback(tenant, passed))

    def headers(self, tenant: str) -> Mapping[bytes, bytes]:
        shown = self._limiter.headers(tenant, self._clock.now())
        return {name.encode(): value.encode() for name, value in shown.items()}

    def _served(self, version: Version) -> ServedModel:
        words, model = version.words, version.spec.model
        if words is None:
            return foreign_model(model, version.upstream, version.info.max_model_len, version.spec.name)
        return ServedModel(
            name=model,
            version=version.spec.name,
            upstream=version.upstream,
            tokenizer=words.tokenizer,
            max_model_len=version.max_model_len,
            system_fingerprint=version.info.numerics_id,
            defaults=words.defaults,
            chat=words.dialogue,
            created=self._created,
            longest_s=version.longest_s,
        )
