"""A tokenizer for tests: an id is a byte, and a few special ones lie above."""

from __future__ import annotations

from collections.abc import Sequence

from camshaft.tokenizer.stream import Detokenizer


class ByteCodec:
    """Ids 0 to 255 are bytes; 256 ends a sequence and is special. Larger ids have no bytes."""

    vocab_size = 260
    special_ids = frozenset({256, 257})
    eos_ids = frozenset({256})
    drops_first_space = False

    def token_bytes(self, id: int) -> bytes:
        return bytes([id]) if id < 256 else b"<end>" if id == 256 else b""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return list(text.encode())

    def n_at_least(self, text: str) -> int:
        return len(text)

    def detokenizer(self, prompt_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> Detokenizer:
        return Detokenizer(self, prompt_ids, skip_special_tokens=skip_special_tokens)
