"""Promises: a Retry-After that proves true, because the place is kept.

Who is refused is told when its place is free, each one its own time, and the place is kept for it from then on for a grace. What is
promised is no longer there for newcomers. A place that nobody fetches lapses.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator
from typing import NamedTuple

TWINS = 16  # places of one digest
TWIN_S = (
    0.25  # equal requests so soon after each other are different clients'; a later one is a client that does not wait, and gets no second
)


class Place(NamedTuple):
    due_at: float
    number: int
    tenant: str
    digest: bytes
    n_tokens: int
    made_at: float


class Held(NamedTuple):
    """How much is promised."""

    n_requests: int = 0
    n_tokens: int = 0

    def plus(self, n_requests: int, n_tokens: int) -> Held:
        return Held(self.n_requests + n_requests, self.n_tokens + n_tokens)


class Promises:
    """Places kept, at most `most` of them and `most_of_one` of one tenant. Pure: `now` is handed in."""

    def __init__(self, grace_s: float, most: int, most_of_one: int) -> None:
        self.grace_s = grace_s
        self.held = Held()
        self._most = most
        self._most_of_one = most_of_one
        self._order: list[Place] = []  # by due_at
        self._of_digest: dict[bytes, list[Place]] = {}
        self._of_tenant: dict[str, Held] = {}
        self._n = 0

    def __len__(self) -> int:
        return len(self._order)

    def __iter__(self) -> Iterator[Place]:
        """By the time at which they are due."""
        return iter(self._order)

    def __reversed__(self) -> Iterator[Place]:
        return reversed(self._order)

    def held_of(self, tenant: str) -> Held:
        return self._of_tenant.get(tenant, Held())

    def find(self, digest: bytes) -> Place | None:
        """The first place kept for this digest."""
        places = self._of_digest.get(digest)
        return places[0] if places else None

    def keep(self, tenant: str, digest: bytes, n_tokens: int, due_at: float, now: float) -> Place | None:
        """Keep a place from `due_at` on. None where there is nobody to keep it for, one is kept already, or no room to remember it."""
        twins = self._of_digest.get(digest, [])
        if not digest or len(twins) >= TWINS or (twins and now - max(twin.made_at for twin in twins) > TWIN_S):
            return None
        if len(self._order) >= self._most or self.held_of(tenant).n_requests >= self._most_of_one:
            return None
        self._n += 1
        place = Place(due_at, self._n, tenant, digest, n_tokens, now)
        self._add(place)
        return place

    def move(self, place: Place, due_at: float) -> None:
        """Its time came and the room was not there: the estimate was wrong."""
        self.drop(place)
        self._add(place._replace(due_at=due_at))

    def drop(self, place: Place) -> None:
        """It was fetched, or is given up. Exactly once."""
        i = bisect.bisect_left(self._order, place)
        assert self._order[i] == place
        del self._order[i]
        twins = self._of_digest[place.digest]
        twins.remove(place)
        if not twins:
            del self._of_digest[place.digest]
        self._count(place, -1)

    def lapse(self, now: float) -> list[Place]:
        """Drop the places that nobody fetched in time; what was set aside for them is free again."""
        out: list[Place] = []
        while self._order and self._order[0].due_at + self.grace_s < now:
            out.append(self._order[0])
            self.drop(out[-1])
        return out

    def check(self) -> None:
        """Prove the books. Raises AssertionError."""
        assert self._order == sorted(self._order)
        assert sorted(place for twins in self._of_digest.values() for place in twins) == self._order
        assert self.held == Held(len(self._order), sum(place.n_tokens for place in self._order))
        assert self.held == Held(*(sum(column) for column in zip(Held(), *self._of_tenant.values(), strict=True)))

    def _add(self, place: Place) -> None:
        bisect.insort(self._order, place)
        bisect.insort(self._of_digest.setdefault(place.digest, []), place)
        self._count(place, 1)

    def _count(self, place: Place, sign: int) -> None:
        self.held = self.held.plus(sign, sign * place.n_tokens)
        mine = self.held_of(place.tenant).plus(sign, sign * place.n_tokens)
        if mine.n_requests:
            self._of_tenant[place.tenant] = mine
        else:
            del self._of_tenant[place.tenant]
