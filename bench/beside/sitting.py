"""A sitting: some rounds of tasks in one go, and what came of it. A line is judged by the newest sitting that was asked for it."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import harness
import msgspec
from msgspec import Struct

from beside.lines import Judged, Line, Rounds, judge
from beside.setup import Setup
from beside.shell import AbsentError
from beside.tasks import BATCHES, DECODE, PREFILL, Task
from camshaft.bench.machine import Machine, fingerprint

SIDES = ("camshaft Q4_1", "llama.cpp Q4_0", "llama.cpp Q4_1", "OpenVINO", "transformers")


class Sitting(Struct, frozen=True):
    """`rounds[i]` has the figures of each task of that round; `absent` says of a task why it has none, or not in every round."""

    at: str
    machine: Machine
    versions: dict[str, str]
    threads: int
    load_before: float
    load_after: float
    lines: list[str]
    rounds: list[dict[str, dict[str, float]]]
    absent: dict[str, str]


def sit(setup: Setup, tasks: Sequence[Task], n_rounds: int, lines: Sequence[Line]) -> Sitting:
    """Runs the tasks in interleaved rounds, every second round backwards, so that no task always follows the same other."""
    absent: dict[str, str] = {}
    failures: Counter[str] = Counter()
    rounds: list[dict[str, dict[str, float]]] = []
    for number in range(n_rounds):
        seen: dict[str, dict[str, float]] = {}
        for task in tasks if number % 2 == 0 else reversed(tasks):
            # Once may be bad luck; what fails twice is not here.
            if sum(task.name in past for past in rounds) >= task.most_rounds or failures[task.name] > 1:
                continue
            began = time.perf_counter()
            try:
                seen[task.name] = task.run(setup)
            except (AbsentError, OSError, RuntimeError, SystemExit) as error:
                absent[task.name] = str(error).splitlines()[-1] if str(error) else type(error).__name__
                failures[task.name] += 1
            said = seen.get(task.name) or absent[task.name]
            sys.stderr.write(f"round {number + 1}: {task.name}: {said} ({time.perf_counter() - began:.0f} s)\n")
            sys.stderr.flush()
        rounds.append(seen)
    return Sitting(
        at=time.strftime("%Y-%m-%d %H:%M"),
        machine=fingerprint(),
        versions=setup.versions(),
        threads=setup.threads,
        load_before=round(harness.LOAD_BEFORE, 2),
        load_after=round(os.getloadavg()[0], 2),
        lines=[line.name for line in lines],
        rounds=rounds,
        absent=absent,
    )


def kept(sittings: Sequence[Sitting]) -> list[Sitting]:
    """Those that still judge a line: a newer one takes over the lines that it was asked for. Oldest first."""
    left: list[Sitting] = []
    covered: set[str] = set()
    for sitting in reversed(sittings):
        if not set(sitting.lines) <= covered:
            left.append(sitting)
        covered |= set(sitting.lines)
    return left[::-1]


def judged(lines: Sequence[Line], sittings: Sequence[Sitting]) -> list[Judged]:
    """Each line by the newest sitting that was asked for it."""
    found = []
    for line in lines:
        by = next((s for s in reversed(sittings) if line.name in s.lines), None)
        found.append(judge(line, by.rounds, by.absent) if by else judge(line, [], {}))
    return found


def fullest(sittings: Sequence[Sitting]) -> Sitting:
    """Of one sitting or more the one that had most of the engines."""
    return max(sittings, key=lambda s: len({task for seen in s.rounds for task in seen} & set(SIDES)))


def engines(sitting: Sitting) -> str:
    """A table of median tok/s of every engine in a sitting."""
    rounds = sitting.rounds
    sides = [side for side in SIDES if any(side in seen for seen in rounds)]
    rows = [(figure, *(_median(rounds, side, figure) for side in sides)) for figure in (DECODE, PREFILL, *BATCHES)]
    return harness.table(("tok/s", *sides), rows)


def _median(rounds: Rounds, task: str, figure: str) -> str:
    values = [seen[task][figure] for seen in rounds if figure in seen.get(task, {})]
    return f"{statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f})" if values else "–"


def read(kept_before: Mapping[str, Any]) -> list[Sitting]:
    """The sittings of an earlier report."""
    return msgspec.convert(kept_before.get("sittings", []), list[Sitting])
