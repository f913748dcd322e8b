"""Camshaft serves large language models: a native engine and an OpenAI-compatible server in one package."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from camshaft.engine.async_engine import AsyncEngine
    from camshaft.engine.llm import LLM
    from camshaft.tokenizer.tokenizer import Tokenizer
    from camshaft.types import SamplingParams

__version__ = "0.1.0"
__all__ = ["LLM", "AsyncEngine", "SamplingParams", "Tokenizer"]

_HOMES = {
    "LLM": "camshaft.engine.llm",
    "AsyncEngine": "camshaft.engine.async_engine",
    "SamplingParams": "camshaft.types",
    "Tokenizer": "camshaft.tokenizer.tokenizer",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import camshaft` and `camshaft --help` take no time."""
    if name not in _HOMES:
        raise AttributeError(f"module 'camshaft' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
