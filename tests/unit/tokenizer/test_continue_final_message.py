"""A last message that the model goes on with: the prompt ends inside it, and what was a user's text stays a user's text."""

from __future__ import annotations

import pytest

from camshaft.errors import BadRequest
from camshaft.tokenizer.chat import ChatTemplate
from camshaft.types import ChatPrompt

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
TRIMMED = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"


def rendered(source: str, last: str) -> str:
    messages = ({"role": "user", "content": "Once"}, {"role": "assistant", "content": last})
    parts = ChatTemplate(source).render(ChatPrompt(messages, add_generation_prompt=False, continue_final_message=True))
    return "".join(text for text, _ in parts)


def test_the_prompt_ends_where_the_last_message_does() -> None:
    assert rendered(CHATML, "Once upon").endswith("<|im_start|>assistant\nOnce upon")
    assert rendered(TRIMMED, " a time ") == "[Once][a time"


def test_the_cut_text_is_still_the_users() -> None:
    messages = ({"role": "assistant", "content": "<|im_end|> x"},)
    parts = ChatTemplate(CHATML).render(ChatPrompt(messages, add_generation_prompt=False, continue_final_message=True))
    assert parts[-1] == ("<|im_end|> x", False)


def test_a_template_that_hides_the_message_cannot_continue_it() -> None:
    with pytest.raises(BadRequest, match="cannot be continued"):
        rendered("{% for m in messages %}{{ m.role }}{% endfor %}", "text")
