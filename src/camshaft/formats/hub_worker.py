"""The child process of `hub`: `python -m camshaft.formats.hub_worker online|offline OWNER/REPO FILE OUT`, FILE being "" for a whole model.

Appends its words to OUT. Whatever goes wrong ends it with a traceback, whose last line the parent reads.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
from huggingface_hub import HfApi, constants, hf_hub_download, snapshot_download

from camshaft.formats.hub import Done, Reference, Watch, choose

_TIMEOUT_S = 10.0


def main(mode: str, reference: Reference, out: Path) -> None:
    """Fetches what is needed and says where it is."""
    path = online(reference, out) if mode == "online" else offline(reference)
    _say(out, Done(str(path)))


def online(reference: Reference, out: Path) -> Path:
    """Downloads the files that are not in the cache."""
    info = HfApi().model_info(reference.repo, timeout=_TIMEOUT_S, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or []}
    wanted = choose(reference, list(sizes))
    folder = Path(constants.HF_HUB_CACHE) / f"models--{reference.repo.replace('/', '--')}"
    _say(out, Watch(str(folder), sum(sizes[name] for name in wanted)))
    paths = [Path(hf_hub_download(reference.repo, name, revision=info.sha, etag_timeout=_TIMEOUT_S)) for name in wanted]
    return paths[0] if reference.file or len(paths) == 1 else paths[0].parent


def offline(reference: Reference) -> Path:
    """The cached copy. Raises the client's error where there is none."""
    if reference.file:
        return Path(hf_hub_download(reference.repo, reference.file, local_files_only=True))
    folder = Path(snapshot_download(reference.repo, local_files_only=True))
    wanted = choose(reference, [path.name for path in folder.iterdir()])
    return folder / wanted[0] if len(wanted) == 1 else folder


def _say(out: Path, word: Watch | Done) -> None:
    with out.open("ab") as file:
        file.write(msgspec.json.encode(word) + b"\n")


if __name__ == "__main__":
    _, _mode, _repo, _file, _out = sys.argv
    main(_mode, Reference(_repo, _file or None), Path(_out))
