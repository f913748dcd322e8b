"""FlightRecorder: the last steps, for the log when one of them fails."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from camshaft.types import StepPlan

N_STEPS = 64


class Flight(NamedTuple):
    """One step as it was recorded. `step_s` is None for a step that did not come back."""

    number: int
    at: float
    plan: StepPlan
    waiting: int
    available: int  # KV blocks
    step_s: float | None


class FlightRecorder:
    """A ring of the last steps. Recording costs one append; lines are made only when somebody asks."""

    def __init__(self, n_steps: int = N_STEPS) -> None:
        self._flights: deque[Flight] = deque(maxlen=n_steps)
        self.n_recorded = 0

    def record(self, at: float, plan: StepPlan, waiting: int, available: int, step_s: float | None) -> None:
        self.n_recorded += 1
        self._flights.append(Flight(self.n_recorded, at, plan, waiting, available, step_s))

    def lines(self) -> list[str]:
        """Oldest first. Shapes and places only: what people wrote does not belong into a log."""
        return [_line(flight) for flight in self._flights]


def _line(flight: Flight) -> str:
    rows = " ".join(f"{r.slot}:{r.start}+{len(r.ids)}{'s' * r.n_sample}{'p' * len(r.patches)}" for r in flight.plan.rows)
    took = "failed" if flight.step_s is None else f"{flight.step_s * 1000:.1f}ms"
    copies = f" copies={len(flight.plan.copies)}" if flight.plan.copies else ""
    return f"step={flight.number} at={flight.at:.3f} {took} waiting={flight.waiting} available={flight.available}{copies} rows=[{rows}]"
