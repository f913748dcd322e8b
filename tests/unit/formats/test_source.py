"""What a user calls a model becomes a path, or one line that says what to write instead."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import msgspec
import pytest

from camshaft.errors import DownloadError, ModelError
from camshaft.formats import catalogue, download, hub, open_model, source
from camshaft.formats.catalogue import Entry
from camshaft.formats.summary import summarize
from gguf_writer import Tiny, tiny_model
from hf_writer import tiny_folder

USERS_CACHE = os.environ.get("CAMSHAFT_CACHE", "")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CAMSHAFT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_catalogue_rows_are_whole() -> None:
    assert {"smollm2-135m", "gemma3-270m"} <= {e.name for e in catalogue.entries()}
    assert catalogue.find(catalogue.DEFAULT) is not None
    for e in catalogue.entries():
        assert re.fullmatch(r"[0-9a-f]{64}", e.sha256)
        assert e.bytes > 0
        assert e.parts
        assert e.license.id
        assert e.license.url.startswith("https://")
        assert Path(e.file).name == e.file
    assert len({e.name for e in catalogue.entries()}) == len({e.file for e in catalogue.entries()}) == len(catalogue.entries())


@pytest.mark.slow
@pytest.mark.parametrize("name", [e.name for e in catalogue.entries()])
def test_catalogue_rows_can_be_pulled_and_opened(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the network, unless the model is in the user's own cache."""
    monkeypatch.setenv("CAMSHAFT_CACHE", USERS_CACHE)  # an empty value counts as none
    row = catalogue.find(name)
    model = open_model(source.resolve(name))
    assert row is not None
    assert (model.hash, model.file_bytes) == (row.sha256, row.bytes)
    assert model.license is not None
    assert model.license.lower() == row.license.id.lower()
    assert model.vocab is not None


def test_gemmas_terms_are_shown_and_apaches_need_not_be() -> None:
    assert "ai.google.dev/gemma/terms" in source.notice("gemma3-270m")
    assert source.notice("smollm2-135m") == source.notice("./x.gguf") == ""


def test_cache_folder_follows_the_environment() -> None:
    assert source.cache_dir({"CAMSHAFT_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert source.cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/camshaft")
    assert source.cache_dir({}) == Path.home() / ".cache" / "camshaft"


def test_a_path_is_itself(tmp_path: Path) -> None:
    path = tiny_model(tmp_path / "m.gguf")
    assert source.resolve(str(path)) == path
    assert source.resolve(str(tmp_path)) == tmp_path


def test_no_name_means_the_default_model(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Entry, Path]] = []

    def fetch(entry: Entry, folder: Path, progress: object) -> Path:
        asked.append((entry, folder))
        return folder / entry.file

    monkeypatch.setattr(download, "fetch", fetch)
    assert source.resolve() == source.resolve("smollm2-135m") == cache / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert [(e.name, folder) for e, folder in asked] == [("smollm2-135m", cache)] * 2


def test_list_says_what_is_here(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = msgspec.structs.replace(catalogue.entries()[0], bytes=4, sha256=hashlib.sha256(b"GGUF").hexdigest())
    monkeypatch.setattr(catalogue, "entries", lambda: (small,))
    assert [listed.path for listed in source.list_models()] == [None]
    cache.mkdir()
    (cache / small.file).write_bytes(b"GGUF")
    assert [listed.path for listed in source.list_models()] == [cache / small.file]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("smollm2-135", r"no model 'smollm2-135': .* did you mean 'smollm2-135m'\?"),
        ("HuggingFaceTB/SmolLM2-135M", "for Hugging Face write hf://HuggingFaceTB/SmolLM2-135M"),
        ("./absent.gguf", "nor a file or folder here$"),
    ],
)
def test_a_name_that_means_nothing_gets_a_hint(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        source.resolve(name)


@pytest.mark.parametrize("name", ["hf://", "hf://one", "hf://a/b/c", "hf://a/../b", "hf://a/b:../../x.gguf", "hf://a/b:", "hf://a b/c"])
def test_a_malformed_hub_name_is_refused(name: str) -> None:
    with pytest.raises(DownloadError, match="is not of the form"):
        source.resolve(name)


def test_hub_names_are_taken_apart() -> None:
    assert hub.parse("hf://owner/repo-1.5") == hub.Reference("owner/repo-1.5")
    assert hub.parse("hf://owner/repo:sub/m.Q4_0.gguf") == hub.Reference("owner/repo", "sub/m.Q4_0.gguf")


def test_only_the_files_that_are_read_are_downloaded() -> None:
    folder = ["config.json", "tokenizer.json", "README.md", "logo.png", "onnx/model.onnx", "pytorch_model.bin"]
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"]
    reference = hub.Reference("o/r")
    expected = ["config.json", "tokenizer.json", "README.md"]
    assert hub.choose(reference, [*folder, "model.safetensors"]) == [*expected, "model.safetensors"]
    chosen = hub.choose(reference, [*folder, *shards, "consolidated.safetensors", "other/model.safetensors"])
    assert sorted(chosen) == sorted([*expected, *shards])
    assert hub.choose(reference, ["README.md", "m.gguf"]) == ["m.gguf"]
    assert hub.choose(hub.Reference("o/r", "b.gguf"), ["a.gguf", "b.gguf"]) == ["b.gguf"]


@pytest.mark.parametrize(
    ("file", "files", "message"),
    [
        (None, ["a.gguf", "b.gguf"], "several models; name one, as hf://o/r:a.gguf; it has: a.gguf, b.gguf"),
        (None, ["pytorch_model.bin", "config.json"], "neither a .gguf file nor"),
        ("c.gguf", [f"{i}.gguf" for i in range(20)], "no file 'c.gguf'; it has: 0.gguf, .* and 12 more"),
        ("config.json", ["config.json"], "not a .gguf file; for a safetensors model give hf://o/r alone"),
    ],
)
def test_an_unclear_hub_model_is_refused_with_the_choices(file: str | None, files: list[str], message: str) -> None:
    with pytest.raises(DownloadError, match=message):
        hub.choose(hub.Reference("o/r", file), files)


def test_no_network_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A closed port answers at once, as a machine without a network does.
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(DownloadError, match=r"huggingface\.co cannot be reached and no copy is on this machine") as caught:
        source.resolve("hf://owner/repo")
    assert "\n" not in caught.value.message


def test_summary_of_a_gguf_file(tmp_path: Path) -> None:
    found = summarize(open_model(tiny_model(tmp_path / "m.gguf", Tiny(weights="Q8_0"))))
    assert (found.kind, found.license, found.n_tokens, found.tokenizer, found.has_chat_template) == (
        "GGUF v3", "apache-2.0", 264, "gpt2 (gpt-2)", True,
    )  # fmt: skip
    assert [t.type for t in found.types] == ["Q8_0", "F32"]
    assert sum(t.n_bytes for t in found.types) == found.tensor_bytes < found.file_bytes
    assert found.n_parameters == sum(t.n_elements for t in found.types)
    assert 8.5 < found.bits_per_weight < 9


def test_summary_of_a_folder(tmp_path: Path) -> None:
    found = summarize(open_model(tiny_folder(tmp_path / "m")))
    assert (found.kind, found.license, found.n_tokens, found.tokenizer, found.has_chat_template) == (
        "Hugging Face folder", None, 264, "none", False,
    )  # fmt: skip
    assert found.bits_per_weight == 32
