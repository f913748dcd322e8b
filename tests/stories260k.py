"""Turns the stories260K checkpoint (llama2.c's format) into a GGUF file, so that the product's own loader can read it.

    python tests/stories260k.py FOLDER OUT.gguf

The checkpoint is a header of seven int32 (dim, hidden_dim, n_layers, n_heads, n_kv_heads, vocab_size, seq_len; a positive vocab_size
means a tied head) and float32 tensors in the order below. Its rotary embedding pairs neighbours, as GGUF's llama does, so that rows stay
in their order. The vocabulary file is an int32, then for each token a float32 score, an int32 length and the bytes.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gguf_writer import Value, write_gguf

_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6


def convert(folder: Path, out: Path) -> Path:
    """Writes `out` in float32 from stories260K.bin and tok512.bin in `folder`."""
    raw = (folder / "stories260K.bin").read_bytes()
    header = struct.unpack_from("<7i", raw)
    weights = np.frombuffer(raw, dtype="<f4", offset=28)
    metadata = _metadata(header) | _vocabulary(folder / "tok512.bin", abs(header[5]))
    return write_gguf(out, metadata, _tensors(header, weights))


def _metadata(header: tuple[int, ...]) -> dict[str, Value]:
    dim, hidden, n_layers, n_heads, n_kv_heads, _, seq_len = header
    return {
        "general.architecture": "llama",
        "general.name": "stories260K",
        "general.license": "mit",
        "llama.block_count": n_layers,
        "llama.context_length": seq_len,
        "llama.embedding_length": dim,
        "llama.feed_forward_length": hidden,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 10000.0,
        "llama.rope.dimension_count": dim // n_heads,
    }


def _tensors(header: tuple[int, ...], weights: NDArray[np.float32]) -> dict[str, NDArray[np.generic]]:
    dim, hidden, n_layers, n_heads, n_kv_heads, vocab, seq_len = header
    kv = dim // n_heads * n_kv_heads
    at = 0

    def take(*shape: int) -> NDArray[np.float32]:
        nonlocal at
        n = int(np.prod(shape))
        at += n
        return weights[at - n : at].reshape(shape)

    tensors: dict[str, NDArray[np.generic]] = {"token_embd.weight": take(abs(vocab), dim)}
    # Each kind is stored for all layers together.
    kinds = {
        "attn_norm": (dim,), "attn_q": (dim, dim), "attn_k": (kv, dim), "attn_v": (kv, dim), "attn_output": (dim, dim),
        "ffn_norm": (dim,), "ffn_gate": (hidden, dim), "ffn_down": (dim, hidden), "ffn_up": (hidden, dim),
    }  # fmt: skip
    for kind, shape in kinds.items():
        tensors |= {f"blk.{i}.{kind}.weight": layer for i, layer in enumerate(take(n_layers, *shape))}
    tensors["output_norm.weight"] = take(dim)
    at += seq_len * (dim // n_heads)  # tables of cosines and sines, which are computed
    if vocab < 0:
        tensors["output.weight"] = take(abs(vocab), dim)
    assert at == weights.size, (at, weights.size)
    return tensors


def _vocabulary(path: Path, size: int) -> dict[str, Value]:
    raw, at = path.read_bytes(), 4
    tokens: list[str] = []
    scores: list[float] = []
    for _ in range(size):
        score, n = struct.unpack_from("<fi", raw, at)
        # Pieces are stored with plain spaces; GGUF writes SentencePiece's mark for them.
        tokens.append(raw[at + 8 : at + 8 + n].decode().replace(" ", "▁"))
        scores.append(score)
        at += 8 + n
    tokens[:3] = ["<unk>", "<s>", "</s>"]
    types = [_UNKNOWN, _CONTROL, _CONTROL] + [_BYTE] * 256 + [_NORMAL] * (size - 259)
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": np.array(scores, np.float32),
        "tokenizer.ggml.token_type": np.array(types, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": True,
    }


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
