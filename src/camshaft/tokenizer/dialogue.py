"""Dialogue: how one model writes conversations: its template, its tool calls, its reasoning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from camshaft.errors import BadRequest
from camshaft.tokenizer.chat import ChatTemplate
from camshaft.tokenizer.pieces import ContentReader, Reader
from camshaft.tokenizer.reasoning import CLOSE, OPEN, ReasoningReader
from camshaft.tokenizer.tokenizer import ModelFiles, Tokenizer
from camshaft.tokenizer.toolgrammar import free_grammar, tool_grammar
from camshaft.tokenizer.tools import ToolReader
from camshaft.types import ChatPrompt, Grammar


class ChatModelFiles(ModelFiles, Protocol):
    """What a dialogue needs of an opened model."""

    @property
    def chat_template(self) -> str | None: ...


class Dialogue:
    """A tokenizer and a template together. Safe to use from several threads at once."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer = tokenizer
        self.template = template

    @classmethod
    def from_model(cls, model: ChatModelFiles, tokenizer: Tokenizer) -> Dialogue:
        """From an opened model file. Raises ModelError for a template that is none."""
        names = {"bos_token": tokenizer.spelling(tokenizer.bos_id), "eos_token": tokenizer.spelling(tokenizer.eos_id)}
        return cls(tokenizer, ChatTemplate(model.chat_template, special_tokens=names))

    @property
    def can_chat(self) -> bool:
        """Whether the model has a template; a base model has none."""
        return self.template.can_chat

    def encode(self, prompt: ChatPrompt, salt: str = "") -> list[int]:
        """The ids that the engine computes. `salt`: long parts are remembered only for those who give the same one. Raises BadRequest."""
        return self.tokenizer.encode_parts(self.template.render(prompt), salt=salt)

    def reader_for(self, prompt: ChatPrompt, forced: str | None = None) -> Callable[[], Reader] | None:
        """Makes a reader for each choice's text; None where all of it is content.

        `forced`: the tool that must be called, "" for any, None where the model is free to call or not.
        """
        names = frozenset(tool.get("function", tool)["name"] for tool in prompt.tools)
        reasons = self.template.reasons
        if not names and not reasons:
            return None
        begun = reasons and forced is None and self._opens_reasoning(prompt)

        def reader() -> Reader:
            inner: Reader = ToolReader(self.template.tool_format, names) if names else ContentReader()
            return ReasoningReader(inner, begun=begun) if reasons else inner

        return reader

    def tool_grammar(self, tools: Sequence[Mapping[str, Any]], forced: str, *, single: bool) -> Grammar:
        """Constrains an answer to calls of the tool named `forced`, or of any where it is ""; to one call where `single`."""
        return tool_grammar(self.template.tool_format, tools, forced, single=single)

    def free_grammar(self, tools: Sequence[Mapping[str, Any]]) -> Grammar | None:
        """Leaves an answer free but for this: what begins as a call must be a right one. None where the model's format cannot tell."""
        return free_grammar(self.template.tool_format, tools)

    def _opens_reasoning(self, prompt: ChatPrompt) -> bool:
        """Whether the template itself writes the opening mark at the end of the prompt."""
        probe = ChatPrompt(({"role": "user", "content": ""},), (), prompt.add_generation_prompt, prompt.template_kwargs)
        try:
            tail = "".join(text for text, _ in self.template.render(probe))
        except BadRequest:
            # The prompt itself will be refused too, with a better reason.
            return False
        return tail.rstrip().endswith(OPEN) and tail.rfind(OPEN) > tail.rfind(CLOSE)
