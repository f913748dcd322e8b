"""Which settings suit a peer best on this machine: each candidate timed on short cases of every kind, in turn, and the least time wins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from beside.shell import AbsentError

Case = tuple[int, int, int]  # n requests of so many prompt tokens that each generate so many

KINDS: Mapping[str, Case] = {"prefill": (1, 512, 1), "decode": (1, 16, 49), "batch": (8, 48, 48)}
ROUNDS = 3
CLEARLY = 0.97  # of the first candidate's time: what less than this differs is as likely noise


def kind_of(case: Case) -> str:
    """The kind whose settings a case takes."""
    n, prompt, gen = case
    return "batch" if n > 1 else "prefill" if prompt > gen and prompt >= 256 else "decode"


def choose(candidates: list[str], seconds: Callable[[str], Mapping[str, float]]) -> dict[str, str]:
    """The best candidate for each kind, by its least time: the first unless another is clearly faster.

    One that fails is out; raises AbsentError where all fail.
    """
    least: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    why = "there is no candidate"
    for _ in range(ROUNDS):
        for name in candidates:
            try:
                found = seconds(name)
            except AbsentError as error:
                why = str(error)
                continue
            for kind, took in found.items():
                least[kind][name] = min(took, least[kind].get(name, took))
    if not all(least.values()):
        raise AbsentError(why)
    handicapped = {
        kind: {name: took * (CLEARLY if name == candidates[0] else 1) for name, took in times.items()} for kind, times in least.items()
    }
    return {kind: min(times, key=lambda name: times[name]) for kind, times in handicapped.items()}


def remembered(kept: Path, about: Mapping[str, object], tune: Callable[[], dict[str, str]], again: bool) -> dict[str, str]:
    """The choice of an earlier run where it was made about the same (machine, threads, candidates), unless it is wanted anew."""
    if kept.exists() and not again:
        before = json.loads(kept.read_text())
        if before["about"] == about:
            return dict(before["chosen"])
    chosen = tune()
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps({"about": about, "chosen": chosen}, indent=2) + "\n")
    return chosen
