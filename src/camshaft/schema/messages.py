"""Chat messages and tools, as clients send them."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Raw, Struct, field

from camshaft.schema.fields import FunctionName, Name, absent


class TextPart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    text: str


class RefusalPart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="refusal"):
    refusal: str


class FunctionCall(Struct, frozen=True, forbid_unknown_fields=True):
    name: FunctionName
    arguments: str = ""


class ToolCall(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"
    index: int | None = None  # clients that replay a stream's deltas leave it in


class SystemMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="system"):
    content: str | list[TextPart]
    name: Name | None = None


class DeveloperMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="developer"):
    content: str | list[TextPart]
    name: Name | None = None


class UserMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="user"):
    content: str | list[TextPart]
    name: Name | None = None


class AssistantMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="assistant"):
    """The last five fields come back from clients that send a whole answer as history; only the reasoning matters to a template."""

    content: str | list[TextPart | RefusalPart] | None = None
    name: Name | None = None
    tool_calls: list[ToolCall] | None = None
    reasoning_content: str | None = None
    refusal: str | None = None
    annotations: Raw = field(default_factory=absent)
    audio: None = None
    function_call: None = None


class ToolMessage(Struct, frozen=True, forbid_unknown_fields=True, tag_field="role", tag="tool"):
    content: str | list[TextPart]
    tool_call_id: str
    name: Name | None = None


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage


class Function(Struct, frozen=True, forbid_unknown_fields=True):
    name: FunctionName
    description: str | None = None
    parameters: Raw = field(default_factory=absent)  # a JSON schema; absent means no parameters
    strict: bool | None = None


class Tool(Struct, frozen=True, forbid_unknown_fields=True):
    function: Function
    type: Literal["function"] = "function"


class FunctionRef(Struct, frozen=True, forbid_unknown_fields=True):
    name: FunctionName


class NamedToolChoice(Struct, frozen=True, forbid_unknown_fields=True):
    function: FunctionRef
    type: Literal["function"] = "function"


ToolChoice = Literal["none", "auto", "required"] | NamedToolChoice


def text_of(content: str | list[TextPart] | list[TextPart | RefusalPart] | None) -> str | None:
    """A message's content as one string. Parts are lines, so that two of them never run into one word."""
    if content is None or isinstance(content, str):
        return content
    return "\n".join(part.text if isinstance(part, TextPart) else part.refusal for part in content)


def template_message(message: Message) -> dict[str, Any]:
    """The dict that a chat template reads: role, content and what is set of the rest. `developer` is OpenAI's later word for `system`."""
    shown: dict[str, Any] = {"role": _ROLES[type(message)], "content": text_of(message.content)}
    if message.name is not None:
        shown["name"] = message.name
    if isinstance(message, ToolMessage):
        shown["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        if message.tool_calls:
            shown["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.function.name, "arguments": c.function.arguments}}
                for c in message.tool_calls
            ]
        if message.reasoning_content is not None:
            shown["reasoning_content"] = message.reasoning_content
    return shown


_ROLES: dict[type[Message], str] = {
    SystemMessage: "system",
    DeveloperMessage: "system",
    UserMessage: "user",
    AssistantMessage: "assistant",
    ToolMessage: "tool",
}
