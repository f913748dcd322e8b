"""Watch: when an answer's tokens came, for its line in the log."""

from __future__ import annotations

import time

from camshaft.types import Delta, Event, Started


class Watch:
    """Of one call; the first of several choices to begin counts."""

    def __init__(self, began_at: float) -> None:
        """`began_at`: when the call came, in time.perf_counter() seconds."""
        self._began_at = began_at
        self._queue_s: float | None = None
        self._first_at = 0.0
        self._last_at = 0.0
        self._n = 0  # tokens after the first event that had any
        self._n_output = 0
        self._prompt: tuple[int, int] | None = None  # tokens, and how many of them were cached

    def see(self, event: Event) -> None:
        if isinstance(event, Delta):
            n = len(event.ids) or event.n_tokens
            if not n:
                return
            self._n_output += n
            self._last_at = time.perf_counter()
            if self._first_at:
                self._n += n
            else:
                self._first_at = self._last_at
        elif isinstance(event, Started) and self._queue_s is None:
            self._queue_s = event.queue_s
            self._prompt = event.n_prompt, max(0, event.n_cached)

    def notes(self) -> dict[str, object]:
        """Tokens as far as they went by. Milliseconds: in line, to the first token (TTFT), for each one after the first event's (TPOT)."""
        out: dict[str, object] = {}
        if self._prompt is not None:
            out |= {"prompt": self._prompt[0], "cached": self._prompt[1], "output": self._n_output}
        if self._queue_s is not None:
            out["queue_ms"] = round(self._queue_s * 1e3, 1)
        if self._first_at:
            out["ttft_ms"] = round((self._first_at - self._began_at) * 1e3, 1)
        if self._n:
            out["tpot_ms"] = round((self._last_at - self._first_at) / self._n * 1e3, 2)
        return out
