"""Detokenizer: ids in, text out, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

_LONGEST_CHAR = 4  # bytes of UTF-8


class TokenBytes(Protocol):
    """What decoding needs of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]: ...

    @property
    def drops_first_space(self) -> bool: ...

    def token_bytes(self, id: int) -> bytes: ...


class Utf8Stream:
    """Bytes in, whole characters out. What can never become a character is U+FFFD, once per maximal broken part."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def finish(self) -> str:
        """The rest: U+FFFD where a character was left unfinished."""
        return self._decoder.decode(b"", final=True)


class Detokenizer:
    """Text of one output as its tokens come. Joined, the parts are what decoding all ids at once adds to the decoded prompt.

    A character that the prompt's last token began and the output completes is the output's; nothing else of the prompt appears.
    """

    def __init__(self, tokenizer: TokenBytes, prompt_ids: Sequence[int] = (), *, skip_special_tokens: bool = True) -> None:
        self._bytes_of = tokenizer.token_bytes
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        # A SentencePiece text begins with a blank that is not the author's. After any prompt text it is the author's.
        self._drop_space = tokenizer.drops_first_space and not any(i not in self._skipped for i in prompt_ids)
        self._utf8 = Utf8Stream()
        self._begun = self._unfinished(prompt_ids)
        self._n_prompt_bytes = len(self._begun)

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids complete; it may be empty."""
        data = b"".join([self._bytes_of(i) for i in ids if i not in self._skipped])
        if not data:
            return ""
        if self._drop_space:
            self._drop_space = False
            data = data.removeprefix(b" ")
        if self._begun:
            data = self._complete(data)
        return self._utf8.push(data)

    def finish(self) -> str:
        """The last text: U+FFFD for a character that was never finished."""
        data, self._begun = self._begun[self._n_prompt_bytes :] if self._begun else b"", b""
        return self._utf8.push(data) + self._utf8.finish()

    def _unfinished(self, prompt_ids: Sequence[int]) -> bytes:
        """The bytes of a character that the prompt ends in the middle of."""
        tail = b""
        for i in reversed(prompt_ids):
            if i in self._skipped or len(tail) >= _LONGEST_CHAR:
                break
            tail = self._bytes_of(i) + tail
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(tail)
        return decoder.getstate()[0]

    def _complete(self, data: bytes) -> bytes:
        """Bytes for the stream, once it is clear whether they finish the prompt's character; nothing before that."""
        joined = self._begun + data
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(joined)
        if not text:
            self._begun = joined
            return b""
        self._begun = b""
        # The prompt's own half must not show up as a broken character in the output.
        broken = text[0] == "\ufffd" and not joined.startswith("\ufffd".encode())
        return joined[self._n_prompt_bytes :] if broken else joined
