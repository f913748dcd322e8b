"""Sessions: how many turns a conversation has had, and how fast they come."""

from __future__ import annotations

from collections import OrderedDict

_MOST = 8192  # sessions remembered; the one that was silent longest is forgotten first
_KEEP = 0.5  # share of the old pace in the new one


class Sessions:
    """Bounded memory of (tenant, session) -> turns. What is forgotten only starts again at one turn."""

    def __init__(self, usual_pace_s: float) -> None:
        self._usual_pace_s = usual_pace_s
        self._known: OrderedDict[tuple[str, str], tuple[int, float, float]] = OrderedDict()  # turns, pace_s, last_at

    def __len__(self) -> int:
        return len(self._known)

    def visit(self, tenant: str, session: str, now: float) -> tuple[int, float]:
        """Another turn. (turns so far with this one, seconds between them)."""
        key = (tenant, session)
        turns, pace_s, last_at = self._known.pop(key, (0, self._usual_pace_s, now))
        if turns == 1:
            pace_s = now - last_at
        elif turns > 1:
            pace_s = _KEEP * pace_s + (1 - _KEEP) * (now - last_at)
        self._known[key] = (turns + 1, pace_s, now)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return turns + 1, pace_s
