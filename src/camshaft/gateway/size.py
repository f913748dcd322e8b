"""Size: what a request weighs before it is computed, in tokens. An estimate where another server encodes the prompt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from camshaft.gateway.prefix import BLOCK, chain, chain_of_text
from camshaft.types import ChatPrompt, Prompt, Request, TextPrompt, TokenPrompt

_CHARS_PER_BLOCK = 4 * BLOCK


class Size(NamedTuple):
    n_prompt: int
    n_output_most: int
    blocks: tuple[int, ...]  # the prompt's hash chain, for routing


class Sizer:
    """Of one version's requests. `tokens_of`: an estimate for prompts that another server turns into ids."""

    def __init__(self, max_model_len: Callable[[], int], tokens_of: Callable[[Prompt], int]) -> None:
        self._max_model_len = max_model_len
        self._tokens_of = tokens_of

    def size(self, request: Request) -> Size:
        n_prompt, blocks = self._prompt(request)
        # Whoever has asked for no bound may fill the context; 0 where the server keeps that to itself.
        room = max(1, self._max_model_len() - n_prompt) if self._max_model_len() else 4096
        asked = request.sampling.max_tokens
        return Size(n_prompt, room if asked is None else min(asked, room), blocks)

    def _prompt(self, request: Request) -> tuple[int, tuple[int, ...]]:
        salt = request.owner
        prompt = request.prompt
        if isinstance(prompt, TokenPrompt):
            return len(prompt.ids), chain(prompt.ids, BLOCK, salt)
        return self._tokens_of(prompt), chain_of_text(text_of(prompt), _CHARS_PER_BLOCK, salt)


def text_of(prompt: Prompt) -> str:
    """What a prompt says, roughly as its server will read it: equal beginnings stay equal beginnings."""
    if isinstance(prompt, TextPrompt):
        return prompt.text
    assert isinstance(prompt, ChatPrompt)
    said = [f"{m.get('role')}\n{m.get('content')}\n" for m in prompt.messages]
    # Templates show the tools first.
    return (json.dumps(prompt.tools) if prompt.tools else "") + "".join(said)
