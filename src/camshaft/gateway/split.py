"""Split: which version a conversation gets. Sticky while weights stand; when they change, no more conversations move than must.

A key's bucket is one of 10,000. Each version owns as many buckets as its share says. With two versions this is a cut: the one that
stands first in the settings owns the high end, the other the low end, and raising it moves the cut. With three or more, no fixed map from
weights to buckets moves the fewest at each change: let A be the buckets of v1 at (1/2, 1/2, 0). Going to (1/2, 0, 1/2) may move none of
them, going to (0, 1/2, 1/2) none of v2's; so v3 has all but A in the first case and A in the second, and from one to the other all buckets
move, where half would do. Hence a table with a memory, and this rule:

    a version whose share falls gives up the buckets that it took last; one whose share rises takes what was given up.

So exactly the sum of the rises moves, however many versions there are; and for two, the table depends on their weights alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

from camshaft.errors import BadRequest, ConfigError
from camshaft.types import ChatPrompt, Prompt

N_BUCKETS = 10_000


class Sticky(NamedTuple):
    """What a request offers to be recognised by, best first. "" where it has none."""

    header: str = ""  # the session header
    session: str = ""  # the request's own session field
    tenant: str = ""
    conversation: str = ""  # see `conversation`
    request: str = ""

    def key(self) -> str:
        """The first that is there, with its kind, so that a tenant and a session of one name are two."""
        return next((f"{kind}:{value}" for kind, value in zip(self._fields, self, strict=True) if value), "")


def conversation(prompt: Prompt) -> str:
    """A conversation's name: a digest of its first user message, which later turns repeat. "" where the prompt is no conversation."""
    if not isinstance(prompt, ChatPrompt):
        return ""
    for message in prompt.messages:
        if message.get("role") == "user":
            return blake2b(repr(message.get("content")).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return ""


def bucket(key: str, salt: str) -> int:
    """0 to 9,999. Another salt deals all keys anew: each experiment has its own, or the same few tenants are always the first to try."""
    digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8, key=blake2b(salt.encode("utf-8", "surrogatepass")).digest())
    return int.from_bytes(digest.digest(), "little") % N_BUCKETS


def quotas(weights: Mapping[str, float]) -> dict[str, int]:
    """Buckets of each version, 10,000 together, by largest remainder; ties go to who stands first. Raises ConfigError without a weight."""
    total = sum(weights.values())
    if not weights or not 0 < total < float("inf") or any(not weight >= 0 for weight in weights.values()):
        raise ConfigError("versions need weights of 0 or more, and one above 0")
    exact = {name: weight / total * N_BUCKETS for name, weight in weights.items()}
    given = {name: int(share) for name, share in exact.items()}
    left = N_BUCKETS - sum(given.values())
    for name in sorted(exact, key=lambda name: given[name] - exact[name])[:left]:
        given[name] += 1
    return given


class Table:
    """Who owns which bucket, for one set of weights and those that came before."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        shares = quotas(weights)
        # The first is the one that others are cut from: it owns the high end, and gives up its lowest bucket first.
        base = next(iter(shares))
        self._owned: dict[str, list[int]] = {}
        start = 0
        for name in (*(name for name in shares if name != base), base):
            self._owned[name] = list(range(start, start + shares[name]))
            start += shares[name]
        self._owned[base].reverse()
        self._owner = self._index()

    def version(self, bucket: int) -> str:
        return self._owner[bucket]

    def reweigh(self, weights: Mapping[str, float]) -> int:
        """Apply new weights; a version that is not among them has none. Returns how many buckets moved.

        Raises ConfigError, changing nothing.
        """
        shares = quotas(weights)
        given: list[int] = []
        for name in [*self._owned]:
            fewer = len(self._owned[name]) - shares.get(name, 0)
            if fewer > 0:
                given += self._owned[name][-fewer:][::-1]
                del self._owned[name][-fewer:]
        n_moved = len(given)
        for name, share in shares.items():
            owned = self._owned.setdefault(name, [])
            more = share - len(owned)
            owned += given[:more]
            del given[:more]
        self._owned = {name: self._owned[name] for name in shares}
        self._owner = self._index()
        return n_moved

    def snapshot(self) -> dict[str, list[list[int]]]:
        """Runs of [first bucket, how many, +1 or -1] in the order in which they were taken."""
        return {name: _runs(owned) for name, owned in self._owned.items()}

    @classmethod
    def restored(cls, saved: Mapping[str, Sequence[Sequence[int]]], weights: Mapping[str, float]) -> Table:
        """As it stood, then brought to `weights`. What does not own each bucket once is not believed, and begins anew."""
        table = cls(weights)
        owned = {name: [first + step * i for first, n, step in runs for i in range(n)] for name, runs in saved.items()}
        if sorted(b for buckets in owned.values() for b in buckets) == list(range(N_BUCKETS)):
            table._owned = owned
            table.reweigh(weights)
        return table

    def _index(self) -> list[str]:
        owner = [""] * N_BUCKETS
        for name, buckets in self._owned.items():
            for number in buckets:
                owner[number] = name
        return owner


class Split:
    """A model's versions: their weights, and other weights for some tenants, each with a table of its own.

    Tenants with weights of their own come from the settings, so their number is bounded by those.
    """

    def __init__(self, weights: Mapping[str, float], tenants: Mapping[str, Mapping[str, float]] = {}, salt: str = "") -> None:
        self._salt = salt
        self._all = Table(weights)
        self._tenants = {tenant: Table(own) for tenant, own in tenants.items()}
        self._names = _names(weights, tenants)

    def choose(self, sticky: Sticky, forced: str = "") -> str:
        """The version's name. `forced` is a tester's wish, by header. Raises BadRequest for one that there is not."""
        if forced:
            if forced not in self._names:
                raise BadRequest(f"there is no version {forced!r} of this model; there are {', '.join(self._names)}")
            return forced
        table = self._tenants.get(sticky.tenant, self._all)
        return table.version(bucket(sticky.key(), self._salt))

    def reweigh(self, weights: Mapping[str, float], tenants: Mapping[str, Mapping[str, float]] = {}) -> int:
        """New weights. Returns how many of the 10,000 buckets moved, of those without weights of their own.

        Raises ConfigError, changing nothing.
        """
        for own in (weights, *tenants.values()):
            quotas(own)
        moved = self._all.reweigh(weights)
        kept = {tenant: self._tenants[tenant] for tenant in tenants if tenant in self._tenants}
        for tenant, own in tenants.items():
            if tenant in kept:
                kept[tenant].reweigh(own)
            else:
                kept[tenant] = Table(own)
        self._tenants = kept
        self._names = _names(weights, tenants)
        return moved

    def snapshot(self) -> dict[str, Any]:
        return {"all": self._all.snapshot(), "tenants": {tenant: table.snapshot() for tenant, table in self._tenants.items()}}

    def restore(self, saved: Mapping[str, Any], weights: Mapping[str, float], tenants: Mapping[str, Mapping[str, float]] = {}) -> None:
        """Go on from a snapshot with the weights of now: conversations stay where they were as far as those allow."""
        self._all = Table.restored(saved.get("all", {}), weights)
        own = saved.get("tenants", {})
        self._tenants = {tenant: Table.restored(own.get(tenant, {}), mine) for tenant, mine in tenants.items()}
        self._names = _names(weights, tenants)


def _names(weights: Mapping[str, float], tenants: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*weights, *(name for own in tenants.values() for name in own)]))


def _runs(owned: Sequence[int]) -> list[list[int]]:
    """Cut into runs that go up or down by one. A lone bucket is a run that goes up."""
    runs: list[list[int]] = []
    for number in owned:
        if runs:
            first, n, step = runs[-1]
            if n == 1 and abs(number - first) == 1:
                runs[-1] = [first, 2, number - first]
                continue
            if number == first + n * step:
                runs[-1][1] += 1
                continue
        runs.append([number, 1, 1])
    return runs
