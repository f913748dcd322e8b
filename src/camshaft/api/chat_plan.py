"""A chat call, checked and made into requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Raw

from camshaft.api.constraint import checked_schema
from camshaft.api.plan import Origin, Plan, Wanted, make_plan
from camshaft.api.sampling import check_lengths, check_top_logprobs, sampling_params
from camshaft.api.served import ChatFormat, ServedModel
from camshaft.config import ServerConfig, suggest
from camshaft.errors import BadRequest
from camshaft.schema.chat import ChatRequest
from camshaft.schema.fields import is_absent
from camshaft.schema.messages import AssistantMessage, Message, NamedToolChoice, Tool, template_message, text_of
from camshaft.tokenizer.pieces import ContentReader, Reader
from camshaft.types import ChatPrompt, Grammar, SamplingParams

MAX_TOOLS = 128
MAX_MESSAGES = 10_000
MAX_TEMPLATE_KWARGS_BYTES = 65_536
_RESERVED = {"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"}


class ChatFields(Protocol):
    """What makes a prompt, in a chat call and in /tokenize alike."""

    @property
    def messages(self) -> list[Message]: ...
    @property
    def add_generation_prompt(self) -> bool | None: ...
    @property
    def continue_final_message(self) -> bool | None: ...
    @property
    def chat_template_kwargs(self) -> Raw: ...


class ChatPlan(NamedTuple):
    """What a chat answer needs to know beyond the plan that all calls have."""

    plan: Plan
    new_reader: Callable[[], Reader]
    with_reasoning: bool


def chat_plan(fields: ChatRequest, model: ServedModel, config: ServerConfig, origin: Origin) -> ChatPlan:
    """Raises BadRequest, naming the field at fault."""
    if model.chat is None:
        raise BadRequest(f"{model.name} has no chat template; use /v1/completions, or serve an instruct model", param="model")
    params = _params(fields, model, config)
    tools = plain_tools(fields.tools or (), config)
    active = () if fields.tool_choice == "none" else tools
    forced = _forced(fields, tools, params)
    constrained_by = ""
    if not model.foreign and params.grammar is None and (grammar := _call_grammar(fields, model.chat, active, forced)) is not None:
        params, constrained_by = msgspec.structs.replace(params, grammar=grammar), "tools"
    prompt = _told(fields, chat_prompt(fields, _with_strict(fields, tools) if model.foreign else active))
    wanted = Wanted((prompt,), params, bool(fields.logprobs), constrained_by)
    return ChatPlan(
        plan=make_plan(fields, model, wanted, origin),
        new_reader=model.chat.reader_for(prompt, forced) or ContentReader,
        with_reasoning=fields.include_reasoning is not False,
    )


def _told(fields: ChatRequest, prompt: ChatPrompt) -> ChatPrompt:
    """With what a server of another make is told; our engines are held to it by a grammar."""
    choice = fields.tool_choice
    return msgspec.structs.replace(
        prompt,
        tool_choice=f"function:{choice.function.name}" if isinstance(choice, NamedToolChoice) else choice or "",
        single_call=fields.parallel_tool_calls is False,
        reasoning_effort=fields.reasoning_effort or "",
    )


def _with_strict(fields: ChatRequest, tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """The tools, with whether calls must keep to their schema."""
    return tuple(
        tool if given.function.strict is None else {**tool, "function": {**tool["function"], "strict": given.function.strict}}
        for given, tool in zip(fields.tools or (), tools, strict=True)
    )


def plain_tools(tools: Sequence[Tool], config: ServerConfig) -> tuple[dict[str, Any], ...]:
    """Tools as the dicts that a template shows. Raises BadRequest for a bad schema or two tools of one name."""
    if len(tools) > MAX_TOOLS:
        raise BadRequest(f"tools has {len(tools)} entries; at most {MAX_TOOLS} are taken", param="tools")
    shown: dict[str, dict[str, Any]] = {}
    for i, tool in enumerate(tools):
        f = tool.function
        if f.name in shown:
            raise BadRequest(f"two tools are called {f.name!r}; rename one", param=f"tools[{i}].function.name")
        empty: dict[str, Any] = {"type": "object", "properties": {}}
        schema = empty if is_absent(f.parameters) else checked_schema(f.parameters, config, f"tools[{i}].function.parameters")
        shown[f.name] = {"name": f.name, "description": f.description or "", "parameters": schema}
    return tuple({"type": "function", "function": function} for function in shown.values())


def chat_prompt(fields: ChatFields, tools: tuple[dict[str, Any], ...]) -> ChatPrompt:
    """The conversation for the template. Raises BadRequest for one that is empty or cannot be continued."""
    messages = fields.messages
    if not messages:
        raise BadRequest("messages is empty; send one message at least", param="messages")
    if len(messages) > MAX_MESSAGES:
        raise BadRequest(f"messages has {len(messages)} entries; at most {MAX_MESSAGES} are taken", param="messages")
    for i, message in enumerate(messages):
        if isinstance(message, AssistantMessage) and not message.tool_calls and text_of(message.content) is None:
            raise BadRequest(
                f"messages[{i}].content is null; an assistant message has content or tool_calls", param=f"messages[{i}].content"
            )
    continued = bool(fields.continue_final_message)
    if continued and not (isinstance(messages[-1], AssistantMessage) and text_of(messages[-1].content)):
        raise BadRequest("continue_final_message needs an assistant message with content at the end", param="continue_final_message")
    if continued and fields.add_generation_prompt:
        raise BadRequest("add_generation_prompt and continue_final_message exclude each other", param="add_generation_prompt")
    return ChatPrompt(
        messages=tuple(template_message(m) for m in messages),
        tools=tools,
        add_generation_prompt=not continued and fields.add_generation_prompt is not False,
        continue_final_message=continued,
        template_kwargs=_template_kwargs(fields),
    )


def _params(fields: ChatRequest, model: ServedModel, config: ServerConfig) -> SamplingParams:
    params = sampling_params(fields, model, config)
    if fields.top_logprobs is not None and not fields.logprobs:
        raise BadRequest("top_logprobs needs logprobs to be true", param="top_logprobs")
    check_top_logprobs(fields.top_logprobs or 0, config, "top_logprobs")
    most, old = fields.max_completion_tokens, fields.max_tokens
    if most is not None and old is not None and most != old:
        raise BadRequest(f"max_tokens is {old} and max_completion_tokens is {most}; send one of them", param="max_tokens")
    most = next((m for m in (most, old, model.defaults.max_tokens) if m is not None), None)
    check_lengths(most, params.min_tokens)
    logprobs = (fields.top_logprobs or 0) if fields.logprobs else None
    return msgspec.structs.replace(params, max_tokens=most, logprobs=logprobs)


def _forced(fields: ChatRequest, tools: tuple[dict[str, Any], ...], params: SamplingParams) -> str | None:
    """The function that must be called; "" for any of them, None for none."""
    choice = fields.tool_choice
    if choice is None or choice in ("none", "auto"):
        if choice == "auto" and not tools:
            raise BadRequest("tool_choice is auto, but there are no tools", param="tool_choice")
        return None
    if not tools:
        raise BadRequest("tool_choice asks for a tool, but there are none", param="tool_choice")
    if params.grammar is not None:
        raise BadRequest("an answer cannot be a tool call and follow response_format at once; drop one of them", param="tool_choice")
    if not isinstance(choice, NamedToolChoice):
        return ""
    names = [t["function"]["name"] for t in tools]
    if choice.function.name not in names:
        raise BadRequest(
            f"tool_choice names {choice.function.name!r}, which is not in tools{suggest(choice.function.name, names)}", param="tool_choice"
        )
    return choice.function.name


def _call_grammar(fields: ChatRequest, chat: ChatFormat, tools: tuple[dict[str, Any], ...], forced: str | None) -> Grammar | None:
    """What holds tool calls to their form: always where a call is asked for, and where a tool says `strict`."""
    if forced is not None:
        return chat.tool_grammar(tools, forced, single=fields.parallel_tool_calls is False)
    strict = tools and any(tool.function.strict for tool in fields.tools or ())
    return chat.free_grammar(tools) if strict else None


def _template_kwargs(fields: ChatFields) -> dict[str, Any]:
    param = "chat_template_kwargs"
    raw = bytes(fields.chat_template_kwargs)
    if len(raw) > MAX_TEMPLATE_KWARGS_BYTES:
        raise BadRequest(f"{param} has {len(raw)} bytes; at most {MAX_TEMPLATE_KWARGS_BYTES} are taken", param=param)
    try:
        given = {} if is_absent(fields.chat_template_kwargs) else msgspec.json.decode(raw)
    except RecursionError:
        raise BadRequest(f"{param} is nested too deeply; flatten it", param=param) from None
    if not isinstance(given, dict):
        raise BadRequest(f"{param} must be an object", param=param)
    for name in _RESERVED & given.keys():
        raise BadRequest(f"{param}.{name} is set by the server; use the request's own field", param=f"{param}.{name}")
    # The one effort that templates of reasoning models can act on.
    if isinstance(fields, ChatRequest) and fields.reasoning_effort == "none":
        given.setdefault("enable_thinking", False)
    return given
