"""A model file of any kind, seen one way: a description, tensors under our names, a vocabulary, defaults."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from camshaft.errors import ModelError
from camshaft.formats import digest, dtypes
from camshaft.formats.spec import ModelSpec
from camshaft.formats.tensors import Tensor, TensorInfo, TensorSource
from camshaft.formats.vocab import Vocab


class GenerationDefaults(Struct, frozen=True):
    """How the model's makers would sample from it. None where they do not say; `eos_ids` are all ids that end an answer."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    eos_ids: tuple[int, ...] = ()


class TokenizerFolder(Struct, frozen=True):
    """What a Hugging Face folder says about its tokenizer beside tokenizer.json itself. Tokens are text; None where nothing is said."""

    path: Path  # of tokenizer.json
    bos_token: str | None = None
    eos_token: str | None = None
    unk_token: str | None = None
    pad_token: str | None = None
    add_bos: bool | None = None
    add_eos: bool | None = None


class About(Struct, frozen=True):
    """What a model file says beside its network and weights."""

    kind: str  # "GGUF v3", "Hugging Face folder"
    license: str | None = None
    chat_template: str | None = None
    tokenizer: TokenizerFolder | None = None  # of a folder; a GGUF file has a vocabulary instead
    warnings: tuple[str, ...] = ()


class Layout(Struct, frozen=True):
    """How a kind of file stores values, where it differs from ours."""

    paired_rope: bool = False  # rows of Q and K are in neighbour-paired rotary order
    norm_offset: float = 0.0  # added to every norm's weights: Gemma's checkpoints store w for a norm that multiplies by 1 + w


class ModelFile:
    """An opened model. Tensor bytes are views of the file; nothing is copied or decoded before it is asked for."""

    def __init__(
        self, path: Path, spec: ModelSpec, source: TensorSource, placed: dict[str, TensorInfo], *, about: About, layout: Layout
    ) -> None:
        self.path = path
        self.spec = spec
        self.about = about
        self._source = source
        self._placed = placed
        self._layout = layout
        # Set by the opener of a kind that has them; calls that may take a moment, so made when first asked for.
        self.read_vocab: Callable[[], Vocab | None] = lambda: None
        self.read_generation: Callable[[], GenerationDefaults] = GenerationDefaults
        self.files: tuple[Path, ...] = (path,)

    def names(self) -> list[str]:
        """Canonical names of all tensors, in the order of the network."""
        return list(self._placed)

    def info(self, name: str) -> TensorInfo:
        """Where and how the file stores the tensor of this canonical name. Raises ModelError where there is none."""
        info = self._placed.get(name)
        if info is None:
            raise ModelError(f"{self.path.name} has no tensor {name!r}")
        return info

    def tensor(self, name: str) -> Tensor:
        """The matrix of this canonical name, as bytes of the file with their type."""
        info = self.info(name)
        if len(info.shape) != 2:
            raise ModelError(f"{self.path.name}: tensor {info.name!r} is not a matrix")
        return Tensor(name, info.type, info.shape[0], info.shape[1], self._source.data(info), self._row_order(name))

    def vector(self, name: str) -> NDArray[np.float32]:
        """The norm or bias of this canonical name, float32 and ready to use."""
        info = self.info(name)
        if len(info.shape) != 1:
            raise ModelError(f"{self.path.name}: tensor {info.name!r} is not a vector")
        values = dtypes.to_float32(info.type, self._source.data(info), f"{self.path.name}: tensor {info.name!r}")
        if name.endswith("norm") and self._layout.norm_offset:
            return values + np.float32(self._layout.norm_offset)
        order = self._row_order(name)
        return values if order is None else values[order]

    @cached_property
    def vocab(self) -> Vocab | None:
        """The vocabulary of a GGUF file; None for a folder, which has `tokenizer_path`."""
        return self.read_vocab()

    @cached_property
    def generation(self) -> GenerationDefaults:
        """The makers' sampling defaults, and the ids that end an answer."""
        return self.read_generation()

    @property
    def tokenizer_path(self) -> Path | None:
        """tokenizer.json of a folder; None for a GGUF file, which has `vocab`."""
        return self.about.tokenizer.path if self.about.tokenizer else None

    @property
    def chat_template(self) -> str | None:
        return self.about.chat_template

    @property
    def license(self) -> str | None:
        return self.about.license

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should hear about at load, such as types that take more memory than the file."""
        return self.about.warnings

    @property
    def rope_factors(self) -> NDArray[np.float32] | None:
        """Divisors of the rotary inverse frequencies [dim / 2], where the file lists them."""
        factors = self.spec.rope.freq_factors
        return np.array(factors, dtype=np.float32) if factors else None

    @cached_property
    def hash(self) -> str:
        """sha256 over the content of the model's files, in hex. Reads them whole where they changed since that was last done."""
        return digest.sha256(self.files)

    def known_hash(self) -> str | None:
        """The same, if it is known without reading the files."""
        return digest.known(self.files)

    def rest(self) -> None:
        """Lets the system take back the memory of the file's pages: what is read again is mapped again."""
        self._source.rest()

    @property
    def file_bytes(self) -> int:
        """Size of the model's files."""
        return sum(file.stat().st_size for file in self.files)

    @property
    def tensor_bytes(self) -> int:
        """Bytes of the tensors that are used, as they are in the file."""
        return sum(info.n_bytes for info in self._placed.values())

    def _row_order(self, name: str) -> NDArray[np.int32] | None:
        part = name.rpartition(".")[2].removesuffix("_bias")
        if not self._layout.paired_rope or part not in ("q", "k"):
            return None
        n_heads = self.spec.n_heads if part == "q" else self.spec.n_kv_heads
        return half_split_order(n_heads, self.spec.head_dim, self.spec.rope.dim)


def shown(text: str) -> str:
    """A file's word for itself, fit for a terminal: no control characters, no more than a line."""
    return "".join(c for c in text[:200] if c.isprintable())


def half_split_order(n_heads: int, head_dim: int, rope_dim: int) -> NDArray[np.int32]:
    """Rows of a neighbour-paired projection in half-split order: row i of the first half turns with row i of the second.

    In each head, file rows 2i and 2i + 1 become rows i and i + rope_dim / 2; rows past rope_dim do not turn and stay.
    """
    head = np.arange(head_dim, dtype=np.int32)
    head[:rope_dim] = np.concatenate([np.arange(0, rope_dim, 2), np.arange(1, rope_dim, 2)])
    starts = np.arange(n_heads, dtype=np.int32)[:, None] * head_dim  # [heads, 1]
    return (starts + head).reshape(-1).astype(np.int32)
