"""A Hugging Face folder as a model: config.json, safetensors, and what lies beside them about tokenizer and sampling."""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from camshaft.errors import ModelError
from camshaft.formats import names
from camshaft.formats.hf_config import HfConfig, spec_of
from camshaft.formats.json_file import read_json, read_text
from camshaft.formats.model import About, GenerationDefaults, Layout, ModelFile, TokenizerFolder
from camshaft.formats.safetensors import SafetensorsFolder

# The files that are read, and all that a download needs beside the weights.
TEXT_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "README.md",
)  # fmt: skip
_README_BYTES = 1 << 20
_LICENSE = re.compile(r"\A---\r?\n(?:.*\r?\n)*?license:[ \t]*([\w.+-]+)")


class _AddedToken(Struct, frozen=True):
    content: str


class _NamedTemplate(Struct, frozen=True):
    name: str
    template: str


_Token = str | _AddedToken | None


class _TokenizerConfig(Struct, frozen=True):
    bos_token: _Token = None
    eos_token: _Token = None
    unk_token: _Token = None
    pad_token: _Token = None
    add_bos_token: bool | None = None
    add_eos_token: bool | None = None
    chat_template: str | tuple[_NamedTemplate, ...] | None = None


class _GenerationConfig(Struct, frozen=True):
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    eos_token_id: int | tuple[int, ...] | None = None


def open_folder(folder: Path) -> ModelFile:
    """Opens a folder. Raises ModelError for damaged files, an unsupported architecture or tensors that do not fit it."""
    where = f"{folder.name}/config.json"
    if not (folder / "config.json").exists():
        raise ModelError(f"{folder} is not a model: it holds no config.json; a GGUF file is given by its own path")
    config = read_json(folder / "config.json", HfConfig)
    spec = spec_of(config, _folder_name(folder), where)
    weights = SafetensorsFolder(folder)
    # A checkpoint may keep its language model under a prefix; beyond this line all have the plain names.
    found = {names.hf_plain(name): info for name, info in weights.tensors.items()}
    if len(found) != len(weights.tensors):
        raise ModelError(f"{folder.name}: two tensors have the same name but for a prefix")
    if spec.tied_head:
        # Some savers write the shared matrix a second time under the head's name.
        found.pop(names.hf_name("head", spec.family), None)
    foreign = {name: names.hf_name(name, spec.family) for name in names.expected(spec)}
    placed = names.place(spec, foreign, found, ignored=names.HF_IGNORED, where=folder.name)
    layout = Layout(norm_offset=1.0 if spec.family == "gemma3" else 0.0)
    model = ModelFile(folder, spec, weights, placed, about=_about(folder), layout=layout)
    generation = _generation(folder, config, spec.vocab_size)
    model.read_generation = lambda: generation
    texts = tuple(folder / name for name in TEXT_FILES if name != "README.md" and (folder / name).exists())
    model.files = texts + weights.files
    return model


def _about(folder: Path) -> About:
    path = folder / "tokenizer_config.json"
    config = read_json(path, _TokenizerConfig) if path.exists() else _TokenizerConfig()
    tokenizer = None
    if (folder / "tokenizer.json").exists():
        tokenizer = TokenizerFolder(
            path=folder / "tokenizer.json",
            bos_token=_text(config.bos_token),
            eos_token=_text(config.eos_token),
            unk_token=_text(config.unk_token),
            pad_token=_text(config.pad_token),
            add_bos=config.add_bos_token,
            add_eos=config.add_eos_token,
        )
    return About(kind="Hugging Face folder", license=_license(folder), chat_template=_template(folder, config), tokenizer=tokenizer)


def _template(folder: Path, config: _TokenizerConfig) -> str | None:
    """chat_template.jinja wins over the tokenizer's config, as in transformers; of several templates the default one is taken."""
    path = folder / "chat_template.jinja"
    if path.exists():
        return read_text(path)
    if isinstance(config.chat_template, tuple):
        return next((t.template for t in config.chat_template if t.name == "default"), None)
    return config.chat_template


def _generation(folder: Path, config: HfConfig, vocab_size: int) -> GenerationDefaults:
    path = folder / "generation_config.json"
    given = read_json(path, _GenerationConfig) if path.exists() else _GenerationConfig()
    ends = given.eos_token_id if given.eos_token_id is not None else config.eos_token_id
    if ends is None:
        ends = config.language().eos_token_id
    ids = () if ends is None else (ends,) if isinstance(ends, int) else ends
    for i in ids:
        if not 0 <= i < vocab_size:
            raise ModelError(f"{folder.name}: eos_token_id {i} is not a token of the {vocab_size:,}")
    return GenerationDefaults(
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        min_p=given.min_p,
        repetition_penalty=given.repetition_penalty,
        eos_ids=tuple(sorted(set(ids))),
    )


def _license(folder: Path) -> str | None:
    """The licence that the model card's front matter names."""
    path = folder / "README.md"
    if not path.exists():
        return None
    try:
        card = read_text(path, _README_BYTES)
    except ModelError:
        return None  # a model card is prose; an odd one is no reason to refuse the model
    head = card[:8192].split("\n---", 2)[0]
    match = _LICENSE.match(head)
    return match.group(1) if match else None


def _folder_name(folder: Path) -> str:
    """The folder's name; for a snapshot in Hugging Face's cache, whose name is a hash, the repository's."""
    parts = folder.resolve().parts
    if len(parts) >= 3 and parts[-2] == "snapshots" and parts[-3].startswith("models--"):
        return parts[-3].rpartition("--")[2]
    return folder.resolve().name


def _text(token: _Token) -> str | None:
    return token.content if isinstance(token, _AddedToken) else token
