"""Networks, one family a file. `build` is the way in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from camshaft.formats.spec import Family, ModelSpec
from camshaft.models.gemma import gemma3
from camshaft.models.graph import Graph
from camshaft.models.llama import llama
from camshaft.models.qwen import qwen

FAMILIES: Mapping[Family, Callable[[ModelSpec], Graph]] = {"llama": llama, "qwen2": qwen, "qwen3": qwen, "gemma3": gemma3}


def build(spec: ModelSpec) -> Graph:
    """The network that `spec` describes."""
    return FAMILIES[spec.family](spec)
