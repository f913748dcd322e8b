"""SentencePiece BPE: merge the neighbours whose union scores best, leftmost first, until none is left.

Written out here because ranks of pairs, which is what BPE libraries take, cannot say "the score of the union decides and
ties go to the left", and because a table of pairs for 262,144 tokens takes seconds to build where this takes none.
"""

from __future__ import annotations

import heapq
import re

import numpy as np
from numpy.typing import NDArray

from camshaft.tokenizer.tokens import TokenTable

_SPACE = "▁"
_MAX_CACHED_WORDS = 1 << 16
_MAX_CACHED_CHARS = 32


class SpmEncoder:
    """Encodes without special tokens of any kind. Time grows as n log n in the longest stretch that holds no cut.

    Text is cut before a blank wherever no token reaches across the cut, which changes no result, and the short words that
    this gives are remembered.
    """

    def __init__(self, table: TokenTable, scores: NDArray[np.float32], unused: dict[str, int], unk_id: int | None) -> None:
        """`unused`: tokens that merging may pass through but that must be taken apart again at the end."""
        self._ids = table.normal | unused
        self._unused = unused
        self._byte_ids = [table.byte_ids[b] for b in range(256)] if len(table.byte_ids) == 256 else []
        self._unk_id = unk_id
        ids = np.fromiter(self._ids.values(), dtype=np.int64, count=len(self._ids))
        # Equal scores get equal ranks. NaN, which only a broken file has, comes last.
        _, ranks = np.unique(-scores[ids], return_inverse=True)
        self._ranks: dict[str, int] = dict(zip(self._ids, ranks.tolist(), strict=True))
        self._max_len = max(map(len, self._ids), default=1)
        crossed = set(re.findall(f"([^{_SPACE}\0]){_SPACE}", "\0".join(self._ids)))
        self._cut = re.compile(f"(?<=[^{re.escape(''.join(sorted(crossed | {_SPACE})))}])(?={_SPACE})")
        self._words: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        for word in self._cut.split(text.replace(" ", _SPACE)):
            known = self._words.get(word)
            if known is None:
                known = tuple(self._spell(self._merge(word)))
                if len(word) <= _MAX_CACHED_CHARS:
                    if len(self._words) >= _MAX_CACHED_WORDS:
                        self._words = {}
                    self._words[word] = known
            ids.extend(known)
        return ids

    def _merge(self, word: str) -> list[str]:
        """Pieces of the word after all merges. [start, ends[start]) is a piece; ends is 0 inside one."""
        n, ranks, width = len(word), self._ranks, self._max_len + 1
        ends = list(range(1, n + 1))
        befores = list(range(-1, n))
        # One integer orders by rank, then by place, and says how long the union is: n * width never wraps.
        heap = [(ranks[word[i : i + 2]] * n + i) * width + 2 for i in range(n - 1) if word[i : i + 2] in ranks]
        heapq.heapify(heap)
        halves: dict[str, int] = {}  # where the last union that gave this unused piece was joined
        while heap:
            place, length = divmod(heapq.heappop(heap), width)
            start = place % n
            stop, middle = start + length, ends[start]
            # Stale: one of the two neighbours has been merged since.
            if middle == 0 or middle >= stop or ends[middle] != stop:
                continue
            ends[start], ends[middle] = stop, 0
            if self._unused and word[start:stop] in self._unused:
                halves[word[start:stop]] = middle - start
            if stop < n:
                befores[stop] = start
                rank = ranks.get(word[start : ends[stop]])
                if rank is not None:
                    heapq.heappush(heap, (rank * n + start) * width + ends[stop] - start)
            before = befores[start]
            if before >= 0:
                rank = ranks.get(word[before:stop])
                if rank is not None:
                    heapq.heappush(heap, (rank * n + before) * width + stop - before)
        pieces, at = [], 0
        while at < n:
            pieces.extend(_apart(word[at : ends[at]], halves))
            at = ends[at]
        return pieces

    def _spell(self, pieces: list[str]) -> list[int]:
        """Ids of the pieces; a character without a token becomes its bytes, or one unknown token per run."""
        ids: list[int] = []
        for piece in pieces:
            known = self._ids.get(piece)
            if known is not None:
                ids.append(known)
            elif self._byte_ids:
                ids.extend(self._byte_ids[b] for b in piece.encode())
            elif self._unk_id is not None and (not ids or ids[-1] != self._unk_id):
                ids.append(self._unk_id)
        return ids


def _apart(piece: str, halves: dict[str, int]) -> list[str]:
    """An unused piece as the used ones that it was made of."""
    cut = halves.get(piece)
    return [piece] if cut is None else [*_apart(piece[:cut], halves), *_apart(piece[cut:], halves)]
