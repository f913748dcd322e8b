"""Words: how a model reads and writes text, from its file, without its weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from camshaft.engine.codec import Speech
from camshaft.formats.model import GenerationDefaults, ModelFile
from camshaft.tokenizer.chat import ChatTemplate
from camshaft.tokenizer.dialogue import Dialogue
from camshaft.tokenizer.tokenizer import Tokenizer
from camshaft.types import ChatPrompt, SamplingParams


@dataclass(frozen=True)
class Words:
    """A vocabulary, a template, and how the model's makers would sample."""

    tokenizer: Tokenizer
    template: ChatTemplate
    defaults: SamplingParams

    @property
    def speech(self) -> Speech:
        """What an encoder needs of it."""

        def render(prompt: ChatPrompt, salt: str) -> Sequence[int]:
            return self.tokenizer.encode_parts(self.template.render(prompt), salt=salt)

        return Speech(self.tokenizer, render if self.template.can_chat else None)

    @property
    def dialogue(self) -> Dialogue | None:
        """How it writes conversations; None without a template."""
        return Dialogue(self.tokenizer, self.template) if self.template.can_chat else None


def words_of(file: ModelFile) -> Words:
    """Raises ModelError for a vocabulary or a template that is none."""
    tokenizer = Tokenizer.from_model(file)
    # The makers' settings may name more ends than the vocabulary does. Nobody else has seen this tokenizer yet.
    tokenizer.eos_ids = tokenizer.eos_ids | frozenset(file.generation.eos_ids)
    named = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    special = {name: tokenizer.spelling(id) for name, id in named.items() if id is not None}
    return Words(tokenizer, ChatTemplate(file.chat_template, special_tokens=special), _defaults(file.generation))


def _defaults(said: GenerationDefaults) -> SamplingParams:
    """Where the makers say nothing, the API's defaults hold."""
    plain = SamplingParams()
    return SamplingParams(
        temperature=plain.temperature if said.temperature is None else said.temperature,
        top_p=plain.top_p if said.top_p is None else said.top_p,
        top_k=plain.top_k if said.top_k is None else said.top_k,
        min_p=plain.min_p if said.min_p is None else said.min_p,
        repetition_penalty=plain.repetition_penalty if said.repetition_penalty is None else said.repetition_penalty,
    )
