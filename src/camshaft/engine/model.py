"""Model: what a loaded model is, for those who show it, measure it or serve it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from camshaft.types import Capacity, SamplingParams

if TYPE_CHECKING:  # an engine over another runner needs neither
    from camshaft.tokenizer.chat import ChatTemplate
    from camshaft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Model:
    """Sizes in elements and bytes."""

    name: str
    path: Path
    tokenizer: Tokenizer
    template: ChatTemplate
    defaults: SamplingParams  # as the model's makers would sample
    capacity: Capacity
    numerics_id: str  # equal ones give equal answers
    tensor_bytes: int  # as they are in the file
    linear_weights: int  # of the layers' matrices, which every token meets; embedding and head apart
    packed_bytes: int
    kv_bytes: int
    warnings: tuple[str, ...] = ()

    @property
    def vocab_size(self) -> int:
        return self.capacity.vocab_size

    @property
    def can_chat(self) -> bool:
        """Whether the model has a chat template."""
        return self.template.can_chat
