"""Renders every conversation with transformers and stores what comes out: `python tests/golden/make_templates.py`.

Needs transformers, which the tests do not. An error is stored as null: then our rendering must refuse it too.
"""

from __future__ import annotations

import json
from pathlib import Path

from conversations import FAMILIES, SPECIAL_TOKENS, Conversation
from jinja2 import TemplateError
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent / "templates"


def rendered(tokenizer: PreTrainedTokenizerFast, one: Conversation) -> str | None:
    try:
        text = tokenizer.apply_chat_template(
            one["messages"],
            tools=one.get("tools"),
            add_generation_prompt=one.get("add_generation_prompt", True),
            continue_final_message=one.get("continue_final_message", False),
            tokenize=False,
            **one.get("template_kwargs", {}),
        )
    except (TemplateError, TypeError):
        return None
    assert isinstance(text, str)
    return text


def main() -> None:
    found = {}
    for family, conversations in FAMILIES.items():
        source = (HERE / f"{family}.jinja").read_text()
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), chat_template=source, **SPECIAL_TOKENS[family])
        found[family] = [rendered(tokenizer, one) for one in conversations]
    (HERE / "rendered.json").write_text(json.dumps(found, ensure_ascii=True, indent=1) + "\n")


if __name__ == "__main__":
    main()
