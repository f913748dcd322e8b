"""StopMatcher: finds the first stop string in a stream and holds back only what could still become one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class StopMatcher:
    """One automaton over all stop strings (Aho and Corasick, 1975), so each character costs the same however many there are.

    The stop that is complete first wins; of two that are complete at the same place, the longer. So the text is the same
    whatever the pieces it came in. Its state is how much of the tail is the beginning of a stop: exactly what is held back.
    """

    def __init__(self, stops: Iterable[str], *, include_stop: bool = False) -> None:
        """Empty stop strings are ignored: they would match everywhere."""
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self._depth = [0]
        self._ends: list[str | None] = [None]
        for stop in stops:
            if stop:
                self._add(stop)
        self._link()
        self._include_stop = include_stop
        self._state = 0
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, *, may_match: bool = True) -> str:
        """Text that is safe to show. After a match, nothing more.

        `may_match` False: a stop that is complete within `text` is text; one that only begins there can still be completed later.
        """
        if self.matched is not None or not text:
            return ""
        if not self._next[0]:
            return text
        state = self._state
        for i, char in enumerate(text):
            state = self._step(state, char)
            found = self._ends[state]
            if found is not None and may_match:
                return self._match(found, self._held + text[: i + 1])
        self._state = state
        whole = self._held + text
        cut = len(whole) - self._depth[state]
        self._held = whole[cut:]
        return whole[:cut]

    def finish(self) -> str:
        """What was held back and did not become a stop."""
        held, self._held = self._held, ""
        return held

    def _match(self, stop: str, whole: str) -> str:
        self.matched = stop
        self._held = ""
        return whole if self._include_stop else whole[: len(whole) - len(stop)]

    def _add(self, stop: str) -> None:
        state = 0
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._fail.append(0)
                self._depth.append(self._depth[state] + 1)
                self._ends.append(None)
            state = self._next[state][char]
        self._ends[state] = stop

    def _link(self) -> None:
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for char, child in self._next[state].items():
                self._fail[child] = self._step(self._fail[state], char)
                if self._ends[child] is None:
                    self._ends[child] = self._ends[self._fail[child]]
                queue.append(child)

    def _step(self, state: int, char: str) -> int:
        """The state after one more character: the longest tail that begins a stop."""
        while char not in self._next[state]:
            if state == 0:
                return 0
            state = self._fail[state]
        return self._next[state][char]
