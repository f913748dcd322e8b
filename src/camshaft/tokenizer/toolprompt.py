"""Tools in words, for models whose template has no place for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_INTRODUCTION = """You can call functions. These are described here, one JSON object a line:
{tools}
To call one, answer with its name and its arguments as JSON between these marks, once for each call:
<tool_call>
{{"name": "the function's name", "arguments": {{"an argument": "its value"}}}}
</tool_call>
What a call gave is then told to you between <tool_response> and </tool_response>. Where no function helps, answer in words."""


def describe_tools(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same conversation without tool messages: tools stand in the system message, calls and their results in plain messages."""
    told = [_told(message) for message in messages]
    if not tools:
        return told
    listed = "\n".join(json.dumps(tool.get("function", tool), ensure_ascii=False) for tool in tools)
    text = _INTRODUCTION.format(tools=listed)
    if told and told[0].get("role") in ("system", "developer") and isinstance(told[0].get("content"), str):
        return [told[0] | {"content": f"{told[0]['content']}\n\n{text}"}, *told[1:]]
    return [{"role": "system", "content": text}, *told]


def _told(message: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in message.items() if key not in ("tool_calls", "tool_call_id")}
    if message.get("role") == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message.get('content', '')}\n</tool_response>"}
    calls = message.get("tool_calls")
    if isinstance(calls, (list, tuple)) and calls:
        spelled = [f"<tool_call>\n{json.dumps(_call(call), ensure_ascii=False)}\n</tool_call>" for call in calls]
        plain["content"] = "\n".join([*([plain["content"]] if plain.get("content") else []), *spelled])
    return plain


def _call(call: Any) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, Mapping) else {}
    return {"name": function.get("name", ""), "arguments": function.get("arguments", {})}
