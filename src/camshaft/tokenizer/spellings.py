"""Spellings: finds fixed strings in a text, the longest at each place."""

from __future__ import annotations

import re
from collections.abc import Iterable


class Spellings:
    """A vocabulary may have thousands, so they are looked up rather than compiled into one pattern, which takes seconds.

    Only places whose first two characters begin a spelling are looked at, longest first.
    """

    def __init__(self, spellings: Iterable[str]) -> None:
        self._all = frozenset(spellings)
        lengths: dict[str, set[int]] = {}
        for one in self._all:
            lengths.setdefault(one[:2], set()).add(len(one))
        self._lengths = {head: sorted(found, reverse=True) for head, found in lengths.items()}
        firsts = "".join(sorted({one[0] for one in self._all}))
        self._candidates = re.compile(f"[{re.escape(firsts)}]") if firsts else None

    def split(self, text: str) -> list[str]:
        """Text and spellings in turn, beginning and ending with text, which may be empty."""
        if self._candidates is None:
            return [text]
        parts: list[str] = []
        done = 0
        for candidate in self._candidates.finditer(text):
            at = candidate.start()
            if at < done:
                continue
            found = self._at(text, at)
            if found:
                parts += (text[done:at], found)
                done = at + len(found)
        parts.append(text[done:])
        return parts

    def _at(self, text: str, at: int) -> str:
        """The longest spelling that begins here; "" for none."""
        for length in self._lengths.get(text[at : at + 2], ()):
            if text[at : at + length] in self._all:
                return text[at : at + length]
        return text[at] if text[at] in self._all else ""
