"""Memo: ids of long texts seen lately, so that a system prompt is encoded once and not once a request."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

Key = tuple[str, str]  # who may share it, the text


class Memo:
    """Least recently used goes first. Safe for several threads. Bounded in characters, since texts differ in length."""

    def __init__(self, max_chars: int = 4_000_000, min_len: int = 256) -> None:
        """Texts shorter than `min_len` are encoded faster than they are kept."""
        self._max_chars = max_chars
        self._min_len = min_len
        self._n_chars = 0
        self._kept: OrderedDict[Key, tuple[int, ...]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> tuple[int, ...] | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def put(self, key: Key, ids: tuple[int, ...]) -> None:
        """Keeps it if it is worth it: neither short nor larger than a quarter of the whole."""
        n = len(key[1])
        if not self._min_len <= n <= self._max_chars // 4:
            return
        with self._lock:
            if key not in self._kept:
                self._n_chars += n
            self._kept[key] = ids
            while self._n_chars > self._max_chars:
                (_, text), _ = self._kept.popitem(last=False)
                self._n_chars -= len(text)
