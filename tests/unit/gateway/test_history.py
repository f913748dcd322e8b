"""Rollback: where it leads, and that what was rolled back is not taken again unasked."""

from __future__ import annotations

import pytest

from camshaft.errors import BadRequest, Unavailable
from camshaft.gateway.control import UnknownName
from camshaft.gateway.database import MAX_FILES, Accepted
from camshaft.gateway.history import History


class Kept:
    """Implements history.Files in memory."""

    def __init__(self) -> None:
        self.by_at: dict[float, Accepted] = {}
        self.broken = False

    def keep_file(self, file: Accepted) -> None:
        self.by_at[file.at] = file

    async def files(self) -> list[Accepted]:
        if self.broken:
            raise Unavailable("no disk")
        return [self.by_at[at] for at in sorted(self.by_at)]


def history(*texts: str) -> History:
    made = History(Kept(), wall=lambda: 100.0)
    for text in texts:
        made.accept(text, "me")
    return made


def current(of: History) -> tuple[int, str]:
    found = of.current
    assert found is not None
    return found.revision, found.text


def test_the_same_file_twice_is_one_revision() -> None:
    assert [e.revision for e in history("a", "a", "b", "a").entries] == [1, 2, 3]


def test_rollbacks_go_further_back_each_time() -> None:
    made = history("a", "b", "c")
    made.rolled_back(made.target(), "me")
    assert current(made) == (4, "b")
    assert made.is_bad("c")
    made.rolled_back(made.target(), "me")
    assert current(made) == (5, "a")
    with pytest.raises(BadRequest, match="no accepted file to go back to"):
        made.target()


def test_what_was_rolled_back_is_good_again_when_somebody_insists() -> None:
    made = history("a", "b")
    made.rolled_back(made.target(), "me")
    assert made.is_bad("b")
    made.accept("b", "me")
    assert not made.is_bad("b")
    assert current(made) == (4, "b")


def test_a_revision_may_be_named() -> None:
    made = history("a", "b", "c")
    made.rolled_back(made.target(1), "me")
    assert current(made) == (4, "a")
    assert not made.is_bad("b")
    with pytest.raises(UnknownName, match="there is no revision 9; kept are: 1, 2, 3, 4"):
        made.target(9)
    with pytest.raises(BadRequest, match="is what is in force"):
        made.target(1)


async def test_it_survives_a_restart_and_is_bounded() -> None:
    kept = Kept()
    made = History(kept)
    for i in range(MAX_FILES + 5):
        made.accept(f"v = {i}", "me")
    made.rolled_back(made.target(), "me")
    again = History(kept)
    await again.load()
    assert len(made.entries) == MAX_FILES
    assert again.entries[-MAX_FILES:] == made.entries
    assert again.is_bad(f"v = {MAX_FILES + 4}")


async def test_a_broken_disk_costs_the_past_only() -> None:
    kept = Kept()
    kept.broken = True
    made = History(kept)
    await made.load()
    made.accept("a", "me")
    assert current(made) == (1, "a")
