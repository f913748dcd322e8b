"""`/v1/models`."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType


class ModelCard(Struct, frozen=True, kw_only=True):
    """`max_model_len` is vLLM's addition; clients read it to size their prompts."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "camshaft"
    max_model_len: int | UnsetType = UNSET


class ModelList(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelCard]
