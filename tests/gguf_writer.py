"""Writes GGUF files for tests: any metadata and tensors, right or wrong, and tiny random models of each family."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Value = bool | int | float | str | Sequence[str] | NDArray[np.generic]

_ARRAY_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}


@dataclass(frozen=True)
class Encoded:
    """A tensor in a type that numpy lacks. `shape` has the outermost dimension first."""

    type: int
    shape: tuple[int, ...]
    data: bytes


def write_gguf(
    path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, NDArray[np.generic] | Encoded], version: int = 3, alignment: int = 32
) -> Path:
    """Writes the file and returns its path. Integers become u32, i32 or u64 by size; floats f32; lists string arrays."""
    path.write_bytes(gguf_bytes(metadata, tensors, version, alignment))
    return path


def gguf_bytes(
    metadata: Mapping[str, Value], tensors: Mapping[str, NDArray[np.generic] | Encoded], version: int = 3, alignment: int = 32
) -> bytes:
    """The file's content."""
    out = [b"GGUF", struct.pack("<IQQ", version, len(tensors), len(metadata))]
    out += [_string(key) + _value(value) for key, value in metadata.items()]
    body: list[bytes] = []
    at = 0
    for name, tensor in tensors.items():
        encoded = tensor if isinstance(tensor, Encoded) else _encode(tensor)
        dims = tuple(reversed(encoded.shape))
        out.append(_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, encoded.type, at))
        body.append(encoded.data + bytes(-len(encoded.data) % alignment))
        at += len(body[-1])
    head = b"".join(out)
    return head + bytes(-len(head) % alignment) + b"".join(body)


def q8_0(x: NDArray[np.float32]) -> Encoded:
    """Rounds a matrix to Q8_0: blocks of 32 with one half-precision scale."""
    blocks = x.reshape(-1, 32)
    scale = (np.abs(blocks).max(axis=1) / 127).astype(np.float16)
    q = np.rint(blocks / np.where(scale == 0, 1, scale).astype(np.float32)[:, None]).clip(-127, 127).astype(np.int8)
    return Encoded(8, x.shape, np.concatenate([scale[:, None].view(np.uint8), q.view(np.uint8)], axis=1).tobytes())


def q4_1(x: NDArray[np.float32]) -> Encoded:
    """Rounds a matrix to Q4_1: blocks of 32 with scale and minimum, low nibbles first half."""
    blocks = x.reshape(-1, 32)
    low = blocks.min(axis=1).astype(np.float16)
    scale = ((blocks.max(axis=1) - low) / 15).astype(np.float16)
    steps = (blocks - low.astype(np.float32)[:, None]) / np.where(scale == 0, 1, scale).astype(np.float32)[:, None]
    q = np.rint(steps).clip(0, 15).astype(np.uint8)
    nibbles = q[:, :16] | q[:, 16:] << 4
    return Encoded(3, x.shape, np.concatenate([scale[:, None].view(np.uint8), low[:, None].view(np.uint8), nibbles], axis=1).tobytes())


def bf16(x: NDArray[np.float32]) -> Encoded:
    """Rounds to bf16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return Encoded(30, x.shape, ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes())


def byte_alphabet() -> list[str]:
    """The 256 characters that stand for bytes in a byte-level BPE vocabulary (GPT-2's table)."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    table = {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}
    return [table[b] for b in range(256)]


CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class Tiny:
    """Sizes of a tiny model. The vocabulary is 3 control tokens, the 256 bytes and 5 merges: 264 tokens."""

    family: str = "llama"
    n_layers: int = 2
    d_model: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    d_ff: int = 96
    context: int = 512
    window: int = 0  # 0: none (gemma3: 16)
    tied: bool = True
    weights: str = "F32"  # F32 F16 BF16 Q8_0 Q4_1
    seed: int = 0


MERGES = ("h e", "l l", "he ll", "hell o", "Ġ t")
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
VOCAB_SIZE = len(CONTROL) + 256 + len(MERGES)


def tiny_model(path: Path, tiny: Tiny | None = None) -> Path:
    """Writes a random model of one of the supported families, with a byte-level vocabulary and a ChatML template."""
    tiny = tiny or Tiny()
    return write_gguf(path, tiny_metadata(tiny), tiny_tensors(tiny))


def tiny_metadata(tiny: Tiny) -> dict[str, Value]:
    """Metadata of a tiny model, vocabulary included."""
    a = tiny.family
    network: dict[str, Value] = {
        "general.architecture": a,
        "general.name": f"tiny {a}",
        "general.license": "apache-2.0",
        f"{a}.block_count": tiny.n_layers,
        f"{a}.context_length": tiny.context,
        f"{a}.embedding_length": tiny.d_model,
        f"{a}.feed_forward_length": tiny.d_ff,
        f"{a}.attention.head_count": tiny.n_heads,
        f"{a}.attention.head_count_kv": tiny.n_kv_heads,
        f"{a}.attention.key_length": tiny.head_dim,
        f"{a}.attention.value_length": tiny.head_dim,
        f"{a}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{a}.rope.freq_base": 10000.0,
        f"{a}.rope.dimension_count": tiny.head_dim,
    }
    window = tiny.window or (16 if a == "gemma3" else 0)
    if window:
        network[f"{a}.attention.sliding_window"] = window
    tokens = [*CONTROL, *byte_alphabet(), *(merge.replace(" ", "") for merge in MERGES)]
    return network | {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.array([3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)), np.int32),
        "tokenizer.ggml.merges": list(MERGES),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.padding_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHATML,
    }


def tiny_tensors(tiny: Tiny) -> dict[str, NDArray[np.generic] | Encoded]:
    """Random weights under GGUF's names. Norms are near one, the rest is scaled so that activations stay of order one."""
    rng = np.random.default_rng(tiny.seed)
    d, n_q, n_kv = tiny.d_model, tiny.n_heads * tiny.head_dim, tiny.n_kv_heads * tiny.head_dim

    def matrix(rows: int, cols: int) -> NDArray[np.generic] | Encoded:
        x = (rng.standard_normal((rows, cols)) * cols**-0.5).astype(np.float32)
        makers = {"F16": lambda m: m.astype(np.float16), "BF16": bf16, "Q8_0": q8_0, "Q4_1": q4_1}
        return x if tiny.weights == "F32" else makers[tiny.weights](x)

    def norm(n: int) -> NDArray[np.float32]:
        return (1 + 0.1 * rng.standard_normal(n)).astype(np.float32)

    tensors: dict[str, NDArray[np.generic] | Encoded] = {"token_embd.weight": matrix(VOCAB_SIZE, d), "output_norm.weight": norm(d)}
    if not tiny.tied:
        tensors["output.weight"] = matrix(VOCAB_SIZE, d)
    for i in range(tiny.n_layers):
        b = f"blk.{i}."
        tensors |= {b + "attn_norm.weight": norm(d), b + "ffn_norm.weight": norm(d)}
        tensors |= {b + "attn_q.weight": matrix(n_q, d), b + "attn_k.weight": matrix(n_kv, d), b + "attn_v.weight": matrix(n_kv, d)}
        tensors |= {b + "attn_output.weight": matrix(d, n_q), b + "ffn_down.weight": matrix(d, tiny.d_ff)}
        tensors |= {b + "ffn_gate.weight": matrix(tiny.d_ff, d), b + "ffn_up.weight": matrix(tiny.d_ff, d)}
        if tiny.family == "qwen2":
            tensors |= {f"{b}attn_{name}.bias": 0.1 * norm(n) for name, n in (("q", n_q), ("k", n_kv), ("v", n_kv))}
        if tiny.family in ("qwen3", "gemma3"):
            tensors |= {b + "attn_q_norm.weight": norm(tiny.head_dim), b + "attn_k_norm.weight": norm(tiny.head_dim)}
        if tiny.family == "gemma3":
            tensors |= {b + "post_attention_norm.weight": norm(d), b + "post_ffw_norm.weight": norm(d)}
    return tensors


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Value) -> bytes:
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", 9, _ARRAY_TYPES[value.dtype.str[1:]], value.size) + value.tobytes()
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        if value < 0:
            return struct.pack("<Ii", 5, value)
        return struct.pack("<II", 4, value) if value < 1 << 32 else struct.pack("<IQ", 10, value)
    return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(_string(text) for text in value)


def _encode(x: NDArray[np.generic]) -> Encoded:
    return Encoded({"float32": 0, "float16": 1}[x.dtype.name], x.shape, x.tobytes())
