"""The invariance bench runs every schedule, and each is what it says."""

from __future__ import annotations

from pathlib import Path

from camshaft import _native
from camshaft.bench import invariance
from camshaft.config import EngineConfig
from gguf_writer import Tiny, tiny_model


async def test_every_schedule_of_a_tiny_model_gives_the_same_bits(tmp_path: Path) -> None:
    told: list[invariance.Verdict] = []
    path = tiny_model(tmp_path / "m.gguf", Tiny(weights="Q4_1"))
    report = await invariance.run(path, EngineConfig(kv_memory="64M"), _native.available_isas()[0], told.append)
    assert report.holds
    assert [v.variant for v in told] == [v.name for v in invariance.VARIANTS]
    assert {v.n_compared for v in told} == {told[0].n_compared}
    assert told[0].n_compared > 40
