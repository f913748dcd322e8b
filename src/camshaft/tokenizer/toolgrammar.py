"""Grammars that hold an answer to tool calls, in llguidance's Lark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from camshaft.errors import BadRequest
from camshaft.tokenizer.tools import LLAMA3, MISTRAL, ToolFormat
from camshaft.types import Grammar

_MAX_CALLS = 16
# One way to write each value, the one that models were trained on: free blanks let a model write blanks for ever.
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def tool_grammar(format: ToolFormat, tools: Sequence[Mapping[str, Any]], forced: str, *, single: bool) -> Grammar:
    """One call, or where not `single` up to 16, of the tool named `forced`, or of any where it is "".

    Raises BadRequest for a name that no tool has.
    """
    repeat = "" if single else f"{{0,{_MAX_CALLS - 1}}}"
    functions = _chosen(tools, forced)
    if format == MISTRAL:
        more = f' (", " object){repeat}' if repeat else ""
        start = f'start: {_text(format.mark + "[")} object{more} "]"\n'
    elif format == LLAMA3:
        start = "start: object" + (f' ("; " object){repeat}' if repeat else "") + "\n"
    else:
        more = f' ("\\n" call){repeat}' if repeat else ""
        start = f"start: call{more}\ncall: {_text(format.mark)} {_marked_call(format)}\n"
    return Grammar(kind="lark", source=start + _objects(format, functions))


def free_grammar(format: ToolFormat, tools: Sequence[Mapping[str, Any]]) -> Grammar | None:
    """Free text in which what follows a call's mark must be a right call. None for a format whose calls have no mark.

    It costs a mask at every token of the answer, calls or none.
    """
    if not format.mark:
        return None
    start = f"start: part* REST\npart: mark {_marked_call(format)}\nmark[lazy]: REST {_text(format.mark)}\nREST: /(.|\\n)*/\n"
    return Grammar(kind="lark", source=start + _objects(format, _chosen(tools, "")))


def _marked_call(format: ToolFormat) -> str:
    """What follows the mark."""
    return f'"[" object (", " object){{0,{_MAX_CALLS - 1}}} "]"' if format == MISTRAL else f'"\\n" object {_text(chr(10) + format.close)}'


def _objects(format: ToolFormat, functions: Sequence[Mapping[str, Any]]) -> str:
    """Rule `object`: one call. Each function's schema is a document of its own, so that its references stay right."""
    key = "parameters" if format == LLAMA3 else "arguments"
    rules = [f"object: {' | '.join(f'call_{i}' for i in range(len(functions)))}\n"]
    for i, function in enumerate(functions):
        schema = {"type": "object"} | dict(function.get("parameters") or {}) | {"x-guidance": _SPACING}
        head = f'{{"name": {json.dumps(function["name"], ensure_ascii=False)}, "{key}": '
        rules.append(f'call_{i}: {_text(head)} %json {json.dumps(schema)} "}}"\n')
    return "".join(rules)


def _chosen(tools: Sequence[Mapping[str, Any]], forced: str) -> list[Mapping[str, Any]]:
    """The functions that may be called."""
    functions = [tool.get("function", tool) for tool in tools]
    wanted = [f for f in functions if not forced or f["name"] == forced]
    if not wanted:
        raise BadRequest(f"tool_choice names {forced!r}, which is not among the tools", param="tool_choice")
    return wanted


def _text(text: str) -> str:
    return json.dumps(text)
