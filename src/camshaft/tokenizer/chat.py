"""ChatTemplate: a conversation as the text that its model was trained to continue."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError, nodes

from camshaft.clock import SystemClock
from camshaft.errors import BadRequest, ModelError
from camshaft.tokenizer.marked import Marked, mask_of, plain
from camshaft.tokenizer.sandbox import Budget, Sandbox
from camshaft.tokenizer.tokenizer import Part
from camshaft.tokenizer.toolprompt import describe_tools
from camshaft.tokenizer.tools import ToolFormat, detect
from camshaft.types import ChatPrompt, Clock

_MAX_SOURCE_CHARS = 1_000_000
_MAX_DEPTH = 64
_END_MARK = "\ue000camshaft:end-of-text\ue000 "  # the blank at the end shows whether the template trims
_REASONING = ("reasoning_content", "thinking", "reasoning")
# What a template raises when it meets a conversation that it was not written for.
_TEMPLATE_FAILURES = (TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)


class ChatTemplate:
    """Compiled once; renders from any thread. Without a source it is the template of a base model, which has none."""

    def __init__(
        self,
        source: str | None,
        *,
        special_tokens: Mapping[str, str] = {},
        clock: Clock | None = None,
        now: Callable[[], datetime.datetime] = datetime.datetime.now,
        max_s: float = 2.0,
        max_chars: int = 16_000_000,
    ) -> None:
        """`special_tokens`: what the template knows as bos_token and so on. Raises ModelError for a source that is no template."""
        self._clock = clock or SystemClock()
        self._special_tokens = dict(special_tokens)
        self._limits = (max_s, max_chars)
        self._sandbox = Sandbox(now)
        self._template, tree = self._compile(source or "")
        self.can_chat = bool(source)
        self.tool_format: ToolFormat = detect(source or "")
        self.reasons = "<think>" in (source or "") or "enable_thinking" in (source or "")
        self._knows_tools = bool(source) and "tools" in _names(tree)
        self._takes_lists = _loops_over_content(tree)

    def render(self, prompt: ChatPrompt) -> list[Part]:
        """The conversation as stretches of text, each either the template's (control) or a user's.

        Raises BadRequest where the model has no template, the template refuses the conversation, or a bound is met.
        """
        if not self.can_chat:
            raise BadRequest("this is a base model without a chat template; use /v1/completions with a plain prompt", param="messages")
        if not prompt.messages:
            raise BadRequest("messages must not be empty", param="messages")
        messages = [_normal(message, flat=not self._takes_lists) for message in prompt.messages]
        if prompt.continue_final_message:
            messages[-1] = _to_be_continued(messages[-1])
        tools = list(prompt.tools)
        if not self._knows_tools:
            messages, tools = describe_tools(messages, tools), []
        given = {name: _marked(value, 0) for name, value in prompt.template_kwargs.items() if name not in _RESERVED}
        values = {
            **self._special_tokens,
            **given,
            "messages": _marked(messages, 0),
            "tools": _marked(tools, 0) if tools else None,
            "documents": None,
            "add_generation_prompt": prompt.add_generation_prompt,
        }
        text = self._run(values)
        return _parts(_up_to_the_end_mark(text) if prompt.continue_final_message else text)

    def _run(self, values: dict[str, Any]) -> str:
        max_s, max_chars = self._limits
        try:
            return self._sandbox.render(self._template, values, Budget(self._clock, max_s, max_chars))
        except _TEMPLATE_FAILURES as error:
            what = str(error) or type(error).__name__
            raise BadRequest(f"the model's chat template refused the conversation: {what[:300]}", param="messages") from None

    def _compile(self, source: str) -> tuple[Template, nodes.Template]:
        if len(source) > _MAX_SOURCE_CHARS:
            raise ModelError(f"the chat template is larger than {_MAX_SOURCE_CHARS:,} characters")
        try:
            return self._sandbox.from_string(source), self._sandbox.parse(source)
        except TemplateSyntaxError as error:
            raise ModelError(f"the model's chat template is broken in line {error.lineno}: {error.message}") from None
        except (RecursionError, SyntaxError, OverflowError, ValueError) as error:
            raise ModelError(f"the model's chat template cannot be compiled: {type(error).__name__}") from None


_RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt"))


def _normal(message: Mapping[str, Any], *, flat: bool) -> dict[str, Any]:
    """A message as templates expect it: nothing that is None, reasoning under its one name, arguments as objects, text in one piece."""
    found = {key: value for key, value in message.items() if value is not None}
    reasoning = next((found[name] for name in _REASONING if name in found), None)
    if reasoning is not None:
        found = {"thinking": reasoning} | found | {"reasoning_content": reasoning}
    content = found.get("content")
    if flat and isinstance(content, (list, tuple)):
        found["content"] = "\n".join(_text_of(part) for part in content)
    if isinstance(found.get("tool_calls"), (list, tuple)):
        found["tool_calls"] = [_with_object_arguments(call) for call in found["tool_calls"]]
    return found


def _to_be_continued(message: dict[str, Any]) -> dict[str, Any]:
    """The message with a mark at the end of its text, so that its place is found in the output."""
    content = message.get("content")
    if isinstance(content, str):
        return message | {"content": content + _END_MARK}
    if isinstance(content, (list, tuple)) and content and isinstance(content[-1], Mapping) and "text" in content[-1]:
        return message | {"content": [*content[:-1], {**content[-1], "text": content[-1]["text"] + _END_MARK}]}
    raise BadRequest("continue_final_message needs a last message with text", param="continue_final_message")


def _up_to_the_end_mark(text: str) -> str:
    """The output up to where the last message's text ends. A template that trims the mark would have trimmed the text before it."""
    mark = _END_MARK.strip()
    at = plain(text).rfind(mark)
    if at < 0:
        raise BadRequest("the last message cannot be continued: the model's chat template leaves it out", param="continue_final_message")
    return text[:at] if text.startswith(_END_MARK, at) else text[:at].rstrip()


def _text_of(part: Any) -> str:
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return str(part["text"])
    raise BadRequest("this model reads text only; a content part must be of type text", param="messages")


def _with_object_arguments(call: Any) -> Any:
    """OpenAI writes arguments as a JSON string; templates print them with tojson and want the object."""
    if not isinstance(call, Mapping) or not isinstance(call.get("function"), Mapping):
        return call
    function = dict(call["function"])
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return call
        if isinstance(parsed, dict):
            function["arguments"] = parsed
    return {**call, "function": function}


def _marked(value: Any, depth: int) -> Any:
    """The same data with every string, keys too, marked as the user's."""
    if depth > _MAX_DEPTH:
        raise BadRequest(f"messages and tools may be nested {_MAX_DEPTH} deep at most", param="messages")
    if isinstance(value, str):
        return Marked(plain(value))
    if isinstance(value, Mapping):
        return {_marked(key, depth): _marked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_marked(item, depth + 1) for item in value]
    return value


def _parts(text: str) -> list[Part]:
    """Runs of equal marks."""
    mask, whole = mask_of(text), plain(text)
    return [(whole[run.start() : run.end()], mask[run.start()] == 0) for run in re.finditer(rb"\x00+|\x01+", mask)]


def _names(tree: nodes.Template) -> set[str]:
    return {node.name for node in tree.find_all(nodes.Name)}


def _loops_over_content(tree: nodes.Template) -> bool:
    """Whether the template goes through the parts of a message's content by itself."""
    for loop in tree.find_all(nodes.For):
        for node in [loop.iter, *loop.iter.find_all((nodes.Getattr, nodes.Getitem))]:
            if isinstance(node, nodes.Getattr) and node.attr == "content":
                return True
            if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) and node.arg.value == "content":
                return True
    return False
