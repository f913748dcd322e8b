"""The flight recorder keeps the last steps and tells shapes, never what people wrote."""

from __future__ import annotations

from camshaft.observe.flight import FlightRecorder
from camshaft.types import BlockCopy, Row, StepPlan, TablePatch


def test_it_keeps_the_last_steps_only() -> None:
    recorder = FlightRecorder(3)
    for i in range(10):
        recorder.record(float(i), StepPlan((Row(0, i, (1,), 1),)), 0, 9, 0.01)
    lines = recorder.lines()
    assert [line.split()[0] for line in lines] == ["step=8", "step=9", "step=10"]


def test_a_line_tells_the_shape_of_a_step_and_no_content() -> None:
    recorder = FlightRecorder()
    plan = StepPlan((Row(3, 17, (70_001, 70_002), 1, (TablePatch(0, 0, (5,)),)), Row(1, 4, (70_003,), 0)), (BlockCopy(1, 2),))
    recorder.record(1.5, plan, 4, 7, None)
    (line,) = recorder.lines()
    assert line == "step=1 at=1.500 failed waiting=4 available=7 copies=1 rows=[3:17+2sp 1:4+1]"
    assert "7000" not in line
