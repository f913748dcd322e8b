"""Command: one verb of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`arguments` declares the flags; `handler` does the work and returns the exit status."""

    name: str
    help: str
    examples: tuple[str, ...]
    arguments: Callable[[argparse.ArgumentParser], None]
    handler: Callable[[argparse.Namespace], int]


def model_argument(parser: argparse.ArgumentParser, *, optional: bool = True) -> None:
    """MODEL, as every command understands it."""
    parser.add_argument(
        "model",
        nargs="?" if optional else None,
        default="",
        metavar="MODEL",
        help="a catalogue name (camshaft list), a .gguf file, a Hugging Face folder, or hf://owner/repo[:file]"
        + (" (default: smollm2-135m)" if optional else ""),
    )
