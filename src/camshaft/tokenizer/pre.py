"""Pre-tokenizers: how byte-level BPE cuts text into words before it merges, by the name that a file gives.

Each is a list of regular expressions applied one after the other; what a pattern matches stands alone from then on.
The patterns are facts about the models that were trained with them. A wrong one gives wrong ids without any other sign,
so an unknown name is refused rather than guessed.
"""

from __future__ import annotations

from msgspec import Struct

from camshaft.errors import ModelError

_SPACES = r"\s+(?!\S)|\s+"
_LOWER = r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_UPPER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}"
_CASED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{{0}}|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{{0}}"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|" + _SPACES
_LLAMA3 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + _SPACES
_QWEN2 = _CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|" + _SPACES
_TEKKEN = _CASED_WORD.replace("{0}", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + _SPACES
_GPT4O = _CASED_WORD.replace("{0}", _CONTRACTION + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|" + _SPACES


class PreTokenizer(Struct, frozen=True):
    """`whole_words`: a word that is a token stands as it is, without merging."""

    patterns: tuple[str, ...]
    whole_words: bool = False


_BY_NAME = {
    "default": PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
    "gpt-2": PreTokenizer((_GPT2,)),
    "llama-bpe": PreTokenizer((_LLAMA3,), whole_words=True),
    "qwen2": PreTokenizer((_QWEN2,)),
    "smollm": PreTokenizer((r"\p{N}", _GPT2)),
    "falcon": PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    "tekken": PreTokenizer((_TEKKEN,), whole_words=True),
    "gpt-4o": PreTokenizer((_GPT4O,)),
}
# Names of models that cut text as another one does.
_ALIASES = {
    "": "default",
    "gpt2": "gpt-2",
    "mpt": "gpt-2",
    "olmo": "gpt-2",
    "phi-2": "gpt-2",
    "jais": "gpt-2",
    "trillion": "gpt-2",
    "llama3": "llama-bpe",
    "llama-v3": "llama-bpe",
    "falcon3": "llama-bpe",
    "dbrx": "llama-bpe",
    "smaug-bpe": "llama-bpe",
    "deepseek-r1-qwen": "qwen2",
    "stablelm2": "qwen2",
    "megrez": "qwen2",
    "starcoder": "smollm",
    "refact": "smollm",
    "command-r": "smollm",
    "codeshell": "smollm",
    "exaone": "smollm",
}


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer that `tokenizer.ggml.pre` names. Raises ModelError for a name that is not known."""
    found = _BY_NAME.get(_ALIASES.get(name, name))
    if found is None:
        known = ", ".join(sorted(_BY_NAME))
        raise ModelError(f"the model's pre-tokenizer {name!r} is not supported; known are {known} and their kin")
    return found
