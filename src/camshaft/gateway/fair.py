"""Fair: virtual token counters (VTC; Sheng et al., Fairness in Serving Large Language Models, OSDI 2024, Algorithm 2).

Each tenant has a counter of the service it got, in weighted tokens over its weight. The next to be served is the tenant with the least
counter among those that wait. A tenant that comes back from idleness is lifted to the least of those that wait, so that no credit can be
saved up; where none waits, to the counter of the last that left the queue. For two tenants that wait all the time the service differs by
at most 2 * max(W_IN * longest input, W_OUT * most output tokens in the running batch).
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterator, Mapping

W_IN = 1.0  # a computed prompt token
W_OUT = 2.0  # a generated token


class _Account:
    __slots__ = ("count", "n_queued", "n_running", "number", "tenant")

    def __init__(self, tenant: str, number: int) -> None:
        self.tenant = tenant
        self.number = number  # breaks ties: who came first
        self.count = 0.0
        self.n_queued = 0
        self.n_running = 0


class Fair:
    """The counters of one class. Tenants that are idle are forgotten beyond `most`, the least counters first.

    Forgetting an idle tenant whose counter is not above the lift changes nothing, since it would be lifted there; those go first.
    """

    def __init__(self, weight: Callable[[str], float], most: int = 10_000) -> None:
        self._weight = weight
        self._most = most
        self._sweep_at = most
        self._accounts: dict[str, _Account] = {}
        self._order: list[tuple[float, int, str]] = []  # of those that wait, least first
        self._last: _Account | None = None  # the last that left the queue
        self._floor = 0.0  # before anybody left: the level of an earlier life
        self._n = 0

    def __len__(self) -> int:
        return len(self._accounts)

    def __iter__(self) -> Iterator[str]:
        """Those that wait, the next to be served first."""
        return (tenant for _, _, tenant in self._order)

    @property
    def n_waiting(self) -> int:
        """Tenants that wait."""
        return len(self._order)

    def count(self, tenant: str) -> float:
        account = self._accounts.get(tenant)
        return account.count if account is not None else 0.0

    def level(self) -> float:
        """What a tenant that comes now is lifted to."""
        if self._order:
            return self._order[0][0]
        return self._last.count if self._last is not None else self._floor

    # ---------------------------------------------------------------------------------------------------------- queue

    def arrive(self, tenant: str) -> None:
        """One more request of this tenant waits."""
        account = self._account(tenant)
        if not account.n_queued:
            account.count = max(account.count, self.level())
            bisect.insort(self._order, (account.count, account.number, tenant))
        account.n_queued += 1

    def admit(self, tenant: str, n_prompt: int) -> None:
        """One of its requests goes to be served: its input is charged now."""
        account = self._accounts[tenant]
        self._charge(account, W_IN * n_prompt)
        account.n_running += 1
        self.withdraw(tenant)

    def withdraw(self, tenant: str) -> None:
        """One of its requests waits no longer."""
        account = self._accounts[tenant]
        assert account.n_queued > 0
        account.n_queued -= 1
        if not account.n_queued:
            self._remove(account)
            self._last = account

    # --------------------------------------------------------------------------------------------------------- service

    def produced(self, tenant: str, n: int) -> None:
        self._charge(self._accounts[tenant], W_OUT * n)

    def give_back(self, tenant: str, n: int) -> None:
        """So many of the prompt tokens charged were not computed."""
        self._charge(self._accounts[tenant], -W_IN * n)

    def finish(self, tenant: str) -> None:
        """One of its running requests ended."""
        account = self._accounts[tenant]
        assert account.n_running > 0
        account.n_running -= 1

    # ----------------------------------------------------------------------------------------------------------- state

    def snapshot(self) -> tuple[float, dict[str, float]]:
        """The level and the counters, as plain data."""
        return self.level(), {account.tenant: account.count for account in self._accounts.values()}

    def restore(self, level: float, counts: Mapping[str, float]) -> None:
        """What `snapshot` gave in an earlier life. Only into one that has seen nobody yet. At most `most` counters, the greatest."""
        assert not self._accounts
        self._floor = level
        for tenant, count in heapq.nlargest(self._most, counts.items(), key=lambda item: item[1]):
            self._account(tenant).count = count

    def check(self) -> None:
        """Prove the books. Raises AssertionError."""
        waiting = [(a.count, a.number, a.tenant) for a in self._accounts.values() if a.n_queued]
        assert self._order == sorted(waiting)
        for account in self._accounts.values():
            assert account.count >= 0.0, account.tenant
            assert min(account.n_queued, account.n_running) >= 0, account.tenant

    # --------------------------------------------------------------------------------------------------------- private

    def _account(self, tenant: str) -> _Account:
        account = self._accounts.get(tenant)
        if account is None:
            if len(self._accounts) >= self._sweep_at:
                self._sweep()
            self._n += 1
            account = self._accounts[tenant] = _Account(tenant, self._n)
        return account

    def _sweep(self) -> None:
        idle = sorted((a for a in self._accounts.values() if not a.n_queued and not a.n_running), key=lambda a: a.count)
        for account in idle[: max(0, len(self._accounts) - self._most * 3 // 4)]:
            del self._accounts[account.tenant]
        # Those that wait or run cannot be forgotten; the queue's own bound bounds them.
        self._sweep_at = max(self._most, len(self._accounts) * 4 // 3 + 1)

    def _charge(self, account: _Account, tokens: float) -> None:
        if account.n_queued:
            self._remove(account)
        account.count = max(0.0, account.count + tokens / self._weight(account.tenant))
        if account.n_queued:
            bisect.insort(self._order, (account.count, account.number, account.tenant))

    def _remove(self, account: _Account) -> None:
        entry = (account.count, account.number, account.tenant)
        i = bisect.bisect_left(self._order, entry)
        assert self._order[i] == entry
        del self._order[i]
