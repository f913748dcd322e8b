"""A GGUF file as a model: its metadata becomes a ModelSpec, its tensors get our names."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from camshaft.errors import ModelError
from camshaft.formats import dtypes, names
from camshaft.formats.gguf import GgufFile
from camshaft.formats.gguf_values import GgufArray
from camshaft.formats.limits import check_spec
from camshaft.formats.model import About, GenerationDefaults, Layout, ModelFile, shown
from camshaft.formats.spec import Family, ModelSpec, RopeSpec
from camshaft.formats.tensors import TensorInfo
from camshaft.formats.vocab import read_vocab

FAMILIES: dict[str, Family] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3"}

# Gemma 3 files need not carry these: the architecture fixes them.
_GEMMA_LOCAL_THETA = 10_000.0
_GEMMA_LOCAL_TO_GLOBAL = 6  # every sixth layer sees everything
_GEMMA_27B_LAYERS = 62  # the one size whose attention scale is not head_dim ** -0.5


def open_gguf(path: Path) -> ModelFile:
    """Opens a GGUF model. Raises ModelError for a damaged file, an unsupported architecture or tensors that do not fit it."""
    file = GgufFile(path)
    _refuse_parts(file)
    spec = read_spec(file)
    tokens = file.array("tokenizer.ggml.tokens")
    if tokens is not None and tokens.count > spec.vocab_size:
        raise ModelError(f"{path.name}: the vocabulary has {tokens.count:,} tokens, but the embedding only {spec.vocab_size:,} rows")
    foreign = {name: names.gguf_name(name) for name in names.expected(spec)}
    placed = names.place(spec, foreign, file.tensors, ignored=names.GGUF_IGNORED, where=path.name)
    about = About(
        kind=f"GGUF v{file.version}",
        license=shown(file.text("general.license", "")) or None,
        chat_template=file.text("tokenizer.chat_template", "") or None,
        warnings=_warnings(placed),
    )
    model = ModelFile(path, spec, file, placed, about=about, layout=Layout(paired_rope=spec.family == "llama"))
    model.read_vocab = lambda: read_vocab(file)
    model.read_generation = lambda: _generation(file, model)
    return model


def read_spec(file: GgufFile) -> ModelSpec:
    """The description of the network in a file's metadata."""
    where = file.path.name
    arch = file.text("general.architecture")
    family = FAMILIES.get(arch)
    if family is None:
        raise ModelError(f"{where}: architecture {arch!r} is not supported; supported: {', '.join(FAMILIES)}")
    if file.integer(f"{arch}.expert_count", 0) > 0:
        raise ModelError(f"{where}: a mixture of experts is not supported")
    embed = file.tensors.get("token_embd.weight")
    if embed is None or len(embed.shape) != 2:
        raise ModelError(f"{where}: tensor 'token_embd.weight' is missing or not a matrix; a file with a vocabulary alone cannot be run")
    d_model = file.integer(f"{arch}.embedding_length")
    n_heads = _per_layer_integer(file, f"{arch}.attention.head_count")
    if n_heads < 1:
        raise ModelError(f"{where}: {arch}.attention.head_count is {n_heads}")
    head_dim = file.integer(f"{arch}.attention.key_length", d_model // n_heads)
    if file.integer(f"{arch}.attention.value_length", head_dim) != head_dim:
        raise ModelError(f"{where}: values of another size than keys are not supported")
    spec = ModelSpec(
        family=family,
        name=shown(file.text("general.name", "")) or file.path.stem,
        vocab_size=embed.shape[0],
        n_layers=file.integer(f"{arch}.block_count"),
        d_model=d_model,
        n_heads=n_heads,
        n_kv_heads=_per_layer_integer(file, f"{arch}.attention.head_count_kv", n_heads),
        head_dim=head_dim,
        d_ff=_per_layer_integer(file, f"{arch}.feed_forward_length"),
        norm_eps=file.number(f"{arch}.attention.layer_norm_rms_epsilon"),
        max_position=file.integer(f"{arch}.context_length"),
        rope=_rope(file, arch, head_dim),
        tied_head="output.weight" not in file.tensors,
        qkv_bias=family == "qwen2" or "blk.0.attn_q.bias" in file.tensors,
        qk_norm=family in ("qwen3", "gemma3"),
    )
    window = file.integer(f"{arch}.attention.sliding_window", 0)
    if window:
        spec = msgspec.structs.replace(spec, window=window)
    # Checked before the per-layer lists of gemma3 are made, whose length the file chooses.
    check_spec(spec, where)
    if family == "gemma3":
        spec = _gemma(file, spec)
        check_spec(spec, where)
    return spec


def _gemma(file: GgufFile, spec: ModelSpec) -> ModelSpec:
    if spec.window is None:
        raise ModelError(f"{file.path.name}: the metadata lacks 'gemma3.attention.sliding_window'")
    return msgspec.structs.replace(
        spec,
        rope_local=RopeSpec(theta=file.number("gemma3.rope.freq_base_swa", _GEMMA_LOCAL_THETA), dim=spec.rope.dim),
        windowed=_windowed(file, spec.n_layers),
        post_norms=True,
        act="gelu_tanh",
        embed_scale=spec.d_model**0.5,
        attn_scale=(spec.d_model / spec.n_heads) ** -0.5 if spec.n_layers == _GEMMA_27B_LAYERS else None,
        logit_softcap=file.number("gemma3.final_logit_softcapping", 0.0) or None,
        attn_softcap=file.number("gemma3.attn_logit_softcapping", 0.0) or None,
    )


def _windowed(file: GgufFile, n_layers: int) -> tuple[bool, ...]:
    """Which layers have the window: every layer but each n-th, or as a list says."""
    key = "gemma3.attention.sliding_window_pattern"
    listed = file.metadata.get(key)
    if isinstance(listed, GgufArray):
        if listed.count != n_layers:
            raise ModelError(f"{file.path.name}: {key} lists {listed.count:,} layers of {n_layers}")
        return tuple(bool(windowed) for windowed in listed.numbers())
    period = file.integer(key, _GEMMA_LOCAL_TO_GLOBAL)
    if period < 1:
        raise ModelError(f"{file.path.name}: {key} is {period}, not 1 or more")
    return tuple((i + 1) % period != 0 for i in range(n_layers))


def _rope(file: GgufFile, arch: str, head_dim: int) -> RopeSpec:
    kind = file.text(f"{arch}.rope.scaling.type", "none")
    # Files older than scaling.type say the linear factor alone.
    factor = file.number(f"{arch}.rope.scaling.factor", file.number(f"{arch}.rope.scale_linear", 1.0))
    if kind not in ("none", "linear"):
        raise ModelError(f"{file.path.name}: rotary scaling {kind!r} is not supported; supported: none, linear, and Llama 3.1's factors")
    linear = factor != 1.0 and (kind == "linear" or f"{arch}.rope.scaling.type" not in file.metadata)
    return RopeSpec(
        theta=file.number(f"{arch}.rope.freq_base", 10_000.0),
        dim=file.integer(f"{arch}.rope.dimension_count", head_dim),
        scaling="linear" if linear else "none",
        factor=factor if linear else 1.0,
        freq_factors=_freq_factors(file),
    )


def _freq_factors(file: GgufFile) -> tuple[float, ...]:
    info = file.tensors.get("rope_freqs.weight")
    if info is None:
        return ()
    if len(info.shape) != 1 or info.shape[0] > 1024:
        raise ModelError(f"{file.path.name}: tensor 'rope_freqs.weight' has shape {list(info.shape)}, which is no list of rotary factors")
    return tuple(float(f) for f in dtypes.to_float32(info.type, file.data(info), f"{file.path.name}: tensor 'rope_freqs.weight'"))


def _per_layer_integer(file: GgufFile, key: str, default: int | None = None) -> int:
    """A number that some files repeat for every layer. Raises ModelError where layers differ, which is not supported."""
    value = file.metadata.get(key)
    if not isinstance(value, GgufArray):
        return file.integer(key, default)
    numbers = np.unique(value.numbers())
    if len(numbers) != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise ModelError(f"{file.path.name}: {key!r} differs between layers, which is not supported")
    return int(numbers[0])


def _refuse_parts(file: GgufFile) -> None:
    n_parts = file.integer("split.count", 1)
    if n_parts > 1:
        raise ModelError(f"{file.path.name}: this is one of {n_parts} parts of a model; join them first (llama.cpp's gguf-split --merge)")


def _warnings(placed: dict[str, TensorInfo]) -> tuple[str, ...]:
    widened = sorted({info.type for info in placed.values()} & dtypes.WIDENED)
    return tuple(f"{dtypes.type_name(kind)} weights are widened to 8 bits in memory" for kind in widened)


def _generation(file: GgufFile, model: ModelFile) -> GenerationDefaults:
    """Sampling defaults that newer files carry, and the ids that end an answer."""

    def number(key: str) -> float | None:
        return file.number(f"general.sampling.{key}") if f"general.sampling.{key}" in file.metadata else None

    top_k = number("top_k")
    return GenerationDefaults(
        temperature=number("temp"),
        top_p=number("top_p"),
        top_k=None if top_k is None else int(top_k),
        min_p=number("min_p"),
        repetition_penalty=number("penalty_repeat"),
        eos_ids=model.vocab.end_ids if model.vocab else (),
    )
