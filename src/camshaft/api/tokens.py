"""Log-probabilities in OpenAI's two shapes."""

from __future__ import annotations

import codecs
from collections.abc import Collection, Sequence

from camshaft.schema.chat import ChatLogprob, ChatLogprobs, ChatTopLogprob
from camshaft.schema.completions import LegacyLogprobs
from camshaft.types import TokenLogprob

FLOOR = -9999.0  # JSON has no -inf; OpenAI's API uses this for a token that cannot come


def token_text(token: bytes) -> str:
    r"""A token as text. One that is not valid UTF-8 on its own becomes `bytes:\xf0\x9f`, so that different tokens stay different."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in token)


def chat_logprobs(entries: Sequence[TokenLogprob]) -> ChatLogprobs:
    """The newer shape, with each token's bytes."""
    return ChatLogprobs(
        [
            ChatLogprob(
                token_text(e.token),
                _finite(e.logprob) or 0.0,
                list(e.token),
                [ChatTopLogprob(token_text(t.token), _finite(t.logprob) or 0.0, list(t.token)) for t in e.top],
            )
            for e in entries
        ]
    )


def of_text(entries: Sequence[TokenLogprob]) -> Sequence[TokenLogprob]:
    """Without the token that ended the output: clients expect that the tokens, joined, are the text."""
    return entries[:-1] if entries and entries[-1].ends else entries


class LegacyLog:
    """Builds the older shape; remembers where in the text the next token begins."""

    def __init__(self) -> None:
        self._offset = 0  # characters
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add_prompt(self, entries: Sequence[TokenLogprob], text: str, hidden: Collection[int]) -> LegacyLogprobs:
        """The prompt's tokens; `text` is what is echoed for them. Ids in `hidden` (a BOS, say) are no part of it and take no room."""
        shown = [e for e in entries if e.id not in hidden]
        # SentencePiece puts a blank in front of the first word, which the text does not have.
        lead = bool(shown) and shown[0].token.startswith(b" ") and not text.startswith(" ")
        out = empty()
        for e in entries:
            visible = b"" if e.id in hidden else e.token
            if lead and visible:
                visible, lead = visible[1:], False
            self._put(out, e, visible)
        # Whatever a rounding of bytes to characters did, the answer begins where the prompt's text ends.
        self._offset = len(text)
        self._decoder.reset()
        return out

    def add(self, entries: Sequence[TokenLogprob]) -> LegacyLogprobs:
        """The next tokens. A token that completes no character begins where the character does."""
        out = empty()
        for e in entries:
            self._put(out, e, e.token)
        return out

    def _put(self, out: LegacyLogprobs, entry: TokenLogprob, visible: bytes) -> None:
        text = token_text(entry.token)
        out.tokens.append(text)
        out.token_logprobs.append(_finite(entry.logprob))
        out.text_offset.append(self._offset)
        out.top_logprobs.append(_top(entry, text))
        self._offset += len(self._decoder.decode(visible))


def empty() -> LegacyLogprobs:
    return LegacyLogprobs([], [], [], [])


def joined(parts: Sequence[LegacyLogprobs]) -> LegacyLogprobs:
    """Consecutive pieces as one."""
    out = empty()
    for part in parts:
        out.tokens.extend(part.tokens)
        out.token_logprobs.extend(part.token_logprobs)
        out.top_logprobs.extend(part.top_logprobs)
        out.text_offset.extend(part.text_offset)
    return out


def _top(entry: TokenLogprob, text: str) -> dict[str, float] | None:
    """The likeliest tokens and the chosen one, as OpenAI's older API had it; None for a prompt's first token."""
    if entry.logprob is None:
        return None
    top: dict[str, float] = {}
    for t in entry.top:
        # Two ids may spell the same text; the likelier comes first.
        top.setdefault(token_text(t.token), _finite(t.logprob) or 0.0)
    top.setdefault(text, _finite(entry.logprob) or 0.0)
    return top


def _finite(logprob: float | None) -> float | None:
    return logprob if logprob is None or logprob > FLOOR else FLOOR
