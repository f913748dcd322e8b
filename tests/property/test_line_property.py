"""Whatever clients, dispatcher and time do: each ticket leaves once, the books agree, and nothing is left behind."""

from __future__ import annotations

import random
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from camshaft.errors import CamshaftError
from camshaft.gateway.line import Line, LineConfig, Ticket

CONFIG = LineConfig(max_requests=20, max_tokens=1500, tenant_share=0.5, age_s=3, patience_s=2, max_wait_s=15, grace_s=4, max_promises=12)
ACTIONS = ("enter", "enter", "enter", "take", "take", "cached", "produced", "leave", "leave_queued", "expire", "back")


class World:
    """Drives a line as its callers do, and keeps books of its own."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.line = Line(CONFIG, lambda tenant: 2.0 if tenant == "gold" else 1.0)
        self.now = 0.0
        self.queued: dict[int, Ticket] = {}
        self.running: dict[int, Ticket] = {}
        self.n_in = 0
        self.n_out = 0
        self.told: list[tuple[float, str, bytes, int]] = []  # when to come back, as whom
        self._n = 0

    def enter(self, tenant: str = "", digest: bytes = b"", n_prompt: int = 0) -> bool:
        self._n += 1
        tenant = tenant or self.dice.choice(("a", "b", "c", "gold"))
        digest = digest or (b"%d" % self._n if self.dice.random() < 0.7 else b"")
        made = Ticket(
            key=self._n,
            tenant=tenant,
            rank=self.dice.choice((-1, 0, 0, 1, 2, 99)),
            n_prompt=n_prompt or self.dice.choice((1, 10, 100, 700, 1501)),
            n_output_most=50,
            arrived_at=self.now,
            deadline_at=self.now + self.dice.choice((0.5, 5.0, 60.0)),
            promise=digest,
        )
        try:
            self.line.enter(made, self.now)
        except CamshaftError as error:
            if digest and error.retry_after_s is not None:
                self.told.append((self.now + error.retry_after_s, tenant, digest, made.n_prompt))
            return False
        self.queued[made.key] = made
        self.n_in += 1
        return True

    def back(self) -> None:
        for entry in [entry for entry in self.told if entry[0] <= self.now]:
            self.told.remove(entry)
            self.enter(*entry[1:])

    def take(self) -> None:
        shown = self.line.first(5, self.now)
        assert len(set(map(id, shown))) == len(shown) <= 5
        assert bool(shown) == bool(self.queued)
        assert all(self.queued[t.key] is t for t in shown)
        if shown:
            taken = self.dice.choice(shown)
            self.line.take(taken, self.now)
            self.running[taken.key] = self.queued.pop(taken.key)

    def cached(self) -> None:
        for one in self._some(self.running):
            self.line.cached(one, self.dice.choice((0, one.n_prompt // 2, one.n_prompt, 10**6, -1)))

    def produced(self) -> None:
        for one in self._some(self.running):
            self.line.produced(one, self.dice.randrange(4))

    def leave(self) -> None:
        for one in self._some(self.running):
            del self.running[one.key]
            self._leave(one)

    def leave_queued(self) -> None:
        for one in self._some(self.queued):
            del self.queued[one.key]
            self._leave(one)

    def expire(self) -> None:
        timer = self.line.next_timer()
        late = self.line.expire(self.now)
        for one, error in late:
            assert self.queued.pop(one.key) is one
            assert error.status in (503, 504)
            self.n_out += 1
        assert not late or (timer is not None and timer <= self.now)
        assert all(one.deadline_at > self.now for one in self.queued.values())

    def _leave(self, one: Ticket) -> None:
        self.line.leave(one, self.now)
        self.line.leave(one, self.now)
        self.n_out += 1

    def _some(self, tickets: dict[int, Ticket]) -> list[Ticket]:
        return [self.dice.choice(list(tickets.values()))] if tickets else []


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.tuples(st.sampled_from(ACTIONS), st.floats(0, 2)), max_size=120))
def test_every_ticket_leaves_once_and_the_books_agree(seed: int, actions: list[tuple[str, float]]) -> None:
    world = World(seed)
    steps = {
        "enter": world.enter,
        "take": world.take,
        "cached": world.cached,
        "produced": world.produced,
        "leave": world.leave,
        "leave_queued": world.leave_queued,
        "expire": world.expire,
        "back": world.back,
    }
    for name, gap_s in actions:
        world.now += gap_s
        steps[name]()
        assert len(world.line) == len(world.queued) <= CONFIG.max_requests * 1.125
        assert world.line.n_running == len(world.running)
        assert world.n_in == world.n_out + len(world.queued) + len(world.running)
        assert len(world.line.door.promises) <= CONFIG.max_promises
        world.line.check()
    while world.queued:
        world.leave_queued()
    while world.running:
        world.leave()
    world.line.check()
    assert (len(world.line), world.line.n_tokens, world.line.n_running) == (0, 0, 0)
    world.now += 1e5
    with suppress(CamshaftError):
        world.enter()
    assert len(world.line.door.promises) <= 1  # the places of those who never came are gone
