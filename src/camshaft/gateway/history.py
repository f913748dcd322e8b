"""History: which files were in force, which of them were rolled back, and where a rollback leads."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable
from typing import Protocol

from msgspec.structs import replace

from camshaft.errors import BadRequest, Unavailable
from camshaft.gateway.control import UnknownName
from camshaft.gateway.database import MAX_FILES, Accepted

log = logging.getLogger(__name__)


class Files(Protocol):
    """Where they are kept; `state.Store` is one."""

    def keep_file(self, file: Accepted) -> None: ...

    async def files(self) -> list[Accepted]: ...


class History:
    """In memory, written through. The last entry is the file in force. A file is bad or not by its content, not by its revision."""

    def __init__(self, files: Files, wall: Callable[[], float] = time.time) -> None:
        self._files = files
        self._wall = wall
        self._entries: list[Accepted] = []

    async def load(self) -> None:
        """What earlier runs accepted. Goes on without, aloud, where that cannot be read."""
        try:
            self._entries = await self._files.files()
        except Unavailable as error:
            log.warning("accepted files of earlier runs cannot be read, so that a rollback cannot reach them: %s", error.message)

    @property
    def entries(self) -> tuple[Accepted, ...]:
        """Oldest first."""
        return tuple(self._entries)

    @property
    def current(self) -> Accepted | None:
        return self._entries[-1] if self._entries else None

    def is_bad(self, text: str) -> bool:
        """Whether this very file was rolled back."""
        digest = _digest(text)
        return any(e.bad and e.digest == digest for e in self._entries)

    def accept(self, text: str, by: str) -> Accepted:
        """It is in force from now on. One that was bad is no longer: somebody insisted."""
        digest = _digest(text)
        for i, entry in enumerate(self._entries):
            if entry.bad and entry.digest == digest:
                self._entries[i] = replace(entry, bad=False)
                self._files.keep_file(self._entries[i])
        current = self.current
        if current is not None and current.digest == digest:
            return current
        at = max(self._wall(), current.at + 1e-6) if current else self._wall()
        accepted = Accepted(current.revision + 1 if current else 1, round(at, 6), by[:200], digest, False, text)
        self._entries = [*self._entries, accepted][-MAX_FILES:]
        self._files.keep_file(accepted)
        return accepted

    def target(self, revision: int | None = None) -> Accepted:
        """Where a rollback leads: to this revision, or to the latest good file that is not the one in force. Raises where there is none."""
        current = self.current
        if revision is None:
            good = [e for e in self._entries if not e.bad and current is not None and e.digest != current.digest]
            if not good:
                raise BadRequest("there is no accepted file to go back to; `camshaft ctl rollback --list` shows them")
            return good[-1]
        found = next((e for e in reversed(self._entries) if e.revision == revision), None)
        if found is None:
            known = ", ".join(str(e.revision) for e in self._entries) or "none"
            raise UnknownName(f"there is no revision {revision}; kept are: {known}")
        if current is not None and found.digest == current.digest:
            raise BadRequest(f"revision {revision} is what is in force")
        return found

    def rolled_back(self, to: Accepted, by: str) -> Accepted:
        """`to` is in force again, under a new revision; what was, is bad."""
        current = self.current
        for i, entry in enumerate(self._entries):
            if current is not None and entry.digest == current.digest and not entry.bad:
                self._entries[i] = replace(entry, bad=True)
                self._files.keep_file(self._entries[i])
        return self.accept(to.text, by)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
