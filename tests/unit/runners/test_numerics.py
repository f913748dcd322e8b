"""The numerics id changes with what changes logits, and with nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from camshaft.config import EngineConfig
from camshaft.runners.numerics import numerics_id

BASE = numerics_id("abc", EngineConfig(), "avx2")


@pytest.mark.parametrize("changed", [{"compute": "f32"}, {"kv_dtype": "f32"}, {"kv_dtype": "int8"}, {"quantize": "q8"}])
def test_what_changes_logits_changes_the_id(changed: dict[str, Any]) -> None:
    assert numerics_id("abc", EngineConfig(**changed), "avx2") != BASE


def test_the_model_and_the_instruction_set_are_part_of_it() -> None:
    assert numerics_id("abd", EngineConfig(), "avx2") != BASE
    assert numerics_id("abc", EngineConfig(), "ref") != BASE


@pytest.mark.parametrize(
    "changed", [{"threads": 7}, {"block_size": 16}, {"max_num_seqs": 2}, {"kv_memory": "1G"}, {"max_num_batched_tokens": 9}]
)
def test_scheduling_does_not_change_the_id(changed: dict[str, Any]) -> None:
    assert numerics_id("abc", EngineConfig(**changed), "avx2") == BASE
    assert len(BASE) == 16
