"""An engine of this process as a served model."""

from __future__ import annotations

import time

from camshaft.api.served import ServedModel
from camshaft.engine.async_engine import AsyncEngine
from camshaft.tokenizer.dialogue import Dialogue


def served_engine(engine: AsyncEngine, name: str = "", *, longest_s: float = 600.0) -> ServedModel:
    """`name` is what clients call it, the model's own by default. The engine stays its owner's to close."""
    model = engine.model
    return ServedModel(
        name=name or model.name,
        upstream=engine,
        tokenizer=model.tokenizer,
        max_model_len=model.capacity.max_model_len,
        system_fingerprint=model.numerics_id,
        defaults=model.defaults,
        chat=Dialogue(model.tokenizer, model.template) if model.can_chat else None,
        created=int(time.time()),
        longest_s=longest_s,
    )
