"""What the log says of an answer's pace."""

from __future__ import annotations

import time

from camshaft.api.watch import Watch
from camshaft.types import Delta, Finished, Started, Usage


def test_an_answer_without_tokens_has_no_pace() -> None:
    watch = Watch(time.perf_counter())
    watch.see(Started(3, 0, 0.25))
    watch.see(Finished("stop", Usage(3, 0, 0)))
    assert watch.notes() == {"prompt": 3, "cached": 0, "output": 0, "queue_ms": 250.0}


def test_the_first_event_gives_the_ttft_and_the_others_the_tpot() -> None:
    watch = Watch(time.perf_counter() - 1.0)
    watch.see(Started(3, 2, 0.0))
    watch.see(Delta("a", (1, 2)))
    assert set(watch.notes()) == {"prompt", "cached", "output", "queue_ms", "ttft_ms"}
    watch.see(Delta("b", (3, 4)))
    watch.see(Delta("", (), n_tokens=2))
    notes = watch.notes()
    assert (notes["prompt"], notes["cached"], notes["output"]) == (3, 2, 6)
    assert isinstance(notes["ttft_ms"], float)
    assert notes["ttft_ms"] >= 1000.0
    assert isinstance(notes["tpot_ms"], float)
    assert notes["tpot_ms"] >= 0.0
