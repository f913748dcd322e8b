"""TokenEstimate: how many tokens a text is for a server whose tokenizer we do not have, learned from what it reports."""

from __future__ import annotations

from camshaft.types import ChatPrompt, Prompt, TextPrompt

CHARS_PER_TOKEN = 4.0  # English with most tokenizers, before anything was reported
LEAST, MOST = 0.5, 16.0  # characters a token: a report beyond these is a mistake or a jest
MEMORY_TOKENS = 200_000.0  # reports weigh half once so many tokens came after them
MESSAGE_CHARS = 16  # what a template puts around a message, about


class TokenEstimate:
    """Of one model. Two ratios and nothing else: characters a prompt token, and tokens an event of a stream."""

    def __init__(self) -> None:
        # A belief worth 2,000 tokens to begin with, so that one odd prompt does not turn it over.
        self._prompt = _Ratio(2000.0 * CHARS_PER_TOKEN, 2000.0, LEAST, MOST)
        self._event = _Ratio(16.0, 16.0, 1.0, 256.0)  # tokens over events

    @property
    def chars_per_token(self) -> float:
        return self._prompt.value

    def tokens_of(self, prompt: Prompt) -> int:
        """About how many tokens; exact for ids. At least 1."""
        if isinstance(prompt, TextPrompt | ChatPrompt):
            return self.tokens_of_chars(prompt_chars(prompt))
        return max(1, len(prompt.ids))

    def tokens_of_chars(self, n_chars: int) -> int:
        return max(1, round(n_chars / self._prompt.value))

    @property
    def tokens_per_event(self) -> float:
        """About how many tokens come in one event of a stream."""
        return self._event.value

    def learn(self, n_chars: int, n_prompt: int) -> None:
        """The server counted `n_prompt` tokens in a prompt of so many characters."""
        if n_chars > 0 and n_prompt > 0:
            self._prompt.add(n_chars, n_prompt)

    def learn_events(self, n_events: int, n_output: int) -> None:
        """The server counted `n_output` tokens in an answer of `n_events` events."""
        if n_events > 0 and n_output > 0:
            self._event.add(n_output, n_events)


class _Ratio:
    """a / b over what came lately, within bounds."""

    __slots__ = ("_a", "_b", "_high", "_low")

    def __init__(self, a: float, b: float, low: float, high: float) -> None:
        self._a, self._b, self._low, self._high = a, b, low, high

    @property
    def value(self) -> float:
        return self._a / self._b

    def add(self, a: float, b: float) -> None:
        if self._b + b > MEMORY_TOKENS:
            self._a, self._b = self._a / 2, self._b / 2
        # Clamped as it comes, so that one report cannot outweigh all others.
        b = min(b, MEMORY_TOKENS)
        self._a += min(max(a, self._low * b), self._high * b)
        self._b += b


def prompt_chars(prompt: TextPrompt | ChatPrompt) -> int:
    """Characters that become tokens: contents, names and arguments of calls, and tools as JSON would write them, about."""
    if isinstance(prompt, TextPrompt):
        return len(prompt.text)
    n = MESSAGE_CHARS * len(prompt.messages)
    for message in prompt.messages:
        content = message.get("content")
        # What nearly every message is: a role and a text.
        n += len(content) if len(message) == 2 and isinstance(content, str) else _chars(message)
    return n + sum(map(_chars, prompt.tools)) if prompt.tools else n


def _chars(value: object) -> int:
    """Of all strings inside. Depth is bounded where requests are checked."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(len(key) + _chars(inner) for key, inner in value.items())
    return sum(map(_chars, value)) if isinstance(value, list | tuple) else 2
