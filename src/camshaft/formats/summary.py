"""What `camshaft inspect` says about a model, as plain data."""

from __future__ import annotations

from collections import Counter
from math import prod

from msgspec import Struct

from camshaft.formats import dtypes
from camshaft.formats.model import GenerationDefaults, ModelFile
from camshaft.formats.spec import ModelSpec


class TypeCount(Struct, frozen=True):
    """Tensors of one type. `n_bytes` as in the file."""

    type: str
    n_tensors: int
    n_elements: int
    n_bytes: int


class Summary(Struct, frozen=True):
    """A model at a glance."""

    name: str
    path: str
    kind: str
    license: str | None
    spec: ModelSpec
    n_parameters: int
    bits_per_weight: float  # of the tensors in the file
    file_bytes: int
    tensor_bytes: int
    types: tuple[TypeCount, ...]  # largest share first
    n_tokens: int  # in the vocabulary; 0 where there is none
    tokenizer: str  # "gpt2 (smollm)", "llama", "tokenizer.json" or "none"
    has_chat_template: bool
    generation: GenerationDefaults
    warnings: tuple[str, ...]


def summarize(model: ModelFile) -> Summary:
    """The summary of an opened model. Reads no tensor."""
    infos = [model.info(name) for name in model.names()]
    tensors, elements, sizes = Counter[int](), Counter[int](), Counter[int]()
    for info in infos:
        tensors[info.type] += 1
        elements[info.type] += prod(info.shape)
        sizes[info.type] += info.n_bytes
    n_parameters = sum(elements.values())
    vocab = model.vocab
    if vocab:
        tokenizer = f"{vocab.kind} ({vocab.pre})" if vocab.pre else vocab.kind
    else:
        tokenizer = "tokenizer.json" if model.tokenizer_path else "none"
    return Summary(
        name=model.spec.name,
        path=str(model.path),
        kind=model.about.kind,
        license=model.license,
        spec=model.spec,
        n_parameters=n_parameters,
        bits_per_weight=8 * model.tensor_bytes / n_parameters,
        file_bytes=model.file_bytes,
        tensor_bytes=model.tensor_bytes,
        types=tuple(TypeCount(dtypes.type_name(kind), tensors[kind], elements[kind], n) for kind, n in sizes.most_common()),
        n_tokens=len(vocab.tokens) if vocab else model.spec.vocab_size,
        tokenizer=tokenizer,
        has_chat_template=bool(model.chat_template),
        generation=model.generation,
        warnings=model.warnings,
    )
