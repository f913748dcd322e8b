"""From what a user calls a model to a path on this machine."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from camshaft.config import suggest
from camshaft.errors import ModelError
from camshaft.formats import catalogue, download, hub
from camshaft.formats.cache import cache_dir
from camshaft.formats.catalogue import DEFAULT, Entry
from camshaft.formats.download import Progress, silent

__all__ = ["DEFAULT", "Entry", "Listed", "Progress", "cache_dir", "drop_damaged", "list_models", "notice", "resolve", "verify"]


class Listed(Struct, frozen=True):
    """A catalogue entry, and where its file is; None when it was not pulled yet."""

    entry: Entry
    path: Path | None


def list_models() -> list[Listed]:
    """The catalogue, each entry with its file where it is here already."""
    folder = cache_dir()
    paths = [(entry, folder / entry.file) for entry in catalogue.entries()]
    return [Listed(entry, path if download.is_complete(path, entry) else None) for entry, path in paths]


def notice(name: str) -> str:
    """The terms that must be shown before this model is fetched, or nothing."""
    entry = catalogue.find(name)
    return entry.license.notice if entry else ""


def drop_damaged(name: str) -> bool:
    """Removes the pulled file of this name if a bad disk or a careless hand changed it since; whether there was one."""
    entry = catalogue.find(name or DEFAULT)
    path = cache_dir() / entry.file if entry is not None else None
    if entry is None or path is None or not download.is_complete(path, entry) or download.is_intact(path, entry):
        return False
    path.unlink()
    return True


def verify(path: Path, sha256: str) -> None:
    """Raises ModelError where `path` is a pulled model of the catalogue whose content, by its digest, is no longer what was pulled."""
    for entry in catalogue.entries():
        if path == cache_dir() / entry.file and sha256 != entry.sha256:
            raise ModelError(f"{path} was damaged since it was pulled: its checksum is wrong; camshaft pull {entry.name} fetches it again")


def resolve(name: str = "", progress: Progress = silent) -> Path:
    """The path of a model: a catalogue name ("" is the default model), `hf://owner/repo[:file]`, or a path, fetched where that is needed.

    Raises DownloadError when it cannot be fetched, and ModelError for a name that means nothing.
    """
    entry = catalogue.find(name or DEFAULT)
    if entry is not None:
        return download.fetch(entry, cache_dir(), progress)
    if name.startswith(hub.SCHEME):
        return hub.fetch(name, progress)
    path = Path(name).expanduser()
    if path.exists():
        return path
    names = [e.name for e in catalogue.entries()]
    hint = suggest(name, names) or (
        f"; for Hugging Face write hf://{name}" if name.count("/") == 1 and not name.startswith((".", "/", "~")) else ""
    )
    raise ModelError(f"no model {name!r}: it is neither in the catalogue ({', '.join(names)}) nor a file or folder here{hint}")
