"""The door: a path becomes a ModelFile."""

from __future__ import annotations

from pathlib import Path

from camshaft.errors import ModelError
from camshaft.formats.gguf_model import open_gguf
from camshaft.formats.hf import open_folder
from camshaft.formats.model import ModelFile


def open_model(path: Path | str) -> ModelFile:
    """Opens a GGUF file or a Hugging Face folder. Raises ModelError for what cannot be read or run, naming the cause."""
    path = Path(path)
    if not path.exists():
        raise ModelError(f"{path} does not exist")
    if path.suffix == ".safetensors":
        raise ModelError(f"{path.name} holds weights alone; give the folder that it lies in, with its config.json")
    return open_folder(path) if path.is_dir() else open_gguf(path)
