"""A Request as the call that another server understands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from camshaft.cluster.foreign import Dialect
from camshaft.errors import BadGrammar, BadRequest
from camshaft.sample import params
from camshaft.types import ChatPrompt, Grammar, Request, SamplingParams, TextPrompt

ANY_ID = 1 << 31  # vocabulary sizes of other servers are not known
_PLAIN = SamplingParams()


class Question(NamedTuple):
    path: str
    body: bytes
    chat: bool


def question(request: Request, model: str, dialect: Dialect) -> Question:
    """Raises BadRequest for what this server does not understand: leaving it out would be another answer than was asked for."""
    sampling, prompt = request.sampling, request.prompt
    params.check(sampling, ANY_ID)
    if request.resume is not None:
        raise BadRequest("an answer cannot be carried on by a server of another make", param="resume")
    if sampling.prompt_logprobs is not None:
        raise BadRequest("this model's server gives no log-probabilities of a prompt; leave echo or logprobs out", param="echo")
    chat = isinstance(prompt, ChatPrompt)
    fields: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    extras: dict[str, Any] = _extra_sampling(sampling)
    if isinstance(prompt, ChatPrompt):
        fields |= _chat(prompt, dialect)
        extras |= _extra_chat(prompt)
    else:
        given = prompt.text if isinstance(prompt, TextPrompt) else prompt.ids
        if not given:
            raise BadRequest("prompt is empty; send text", param="prompt")
        fields["prompt"] = given
        if isinstance(prompt, TextPrompt) and not prompt.add_special_tokens:
            extras["add_special_tokens"] = False
    fields |= _sampling(sampling, dialect, chat=chat)
    if sampling.seed is not None:
        # Choices of one call share a seed, and would be the same answer over and over.
        fields["seed"] = (sampling.seed + request.choice) % (1 << 63)
    if sampling.grammar is not None:
        fields |= _constraint(sampling.grammar, dialect)
    _add_extras(fields, extras, dialect)
    if request.cache_salt and "cache_salt" in dialect.fields:
        fields["cache_salt"] = request.cache_salt
    return Question("/chat/completions" if chat else "/completions", msgspec.json.encode(fields), chat)


def _chat(prompt: ChatPrompt, dialect: Dialect) -> dict[str, Any]:
    fields: dict[str, Any] = {"messages": [_message(m, dialect) for m in prompt.messages]}
    if prompt.reasoning_effort:
        fields["reasoning_effort"] = prompt.reasoning_effort
    if not prompt.tools:
        return fields
    fields["tools"] = prompt.tools
    if prompt.tool_choice:
        name = prompt.tool_choice.removeprefix("function:")
        named = name != prompt.tool_choice
        fields["tool_choice"] = {"type": "function", "function": {"name": name}} if named else name
    if prompt.single_call:
        fields["parallel_tool_calls"] = False
    return fields


def _message(message: dict[str, Any], dialect: Dialect) -> dict[str, Any]:
    if "reasoning_content" in message and "reasoning_content" not in dialect.kept:
        return {key: value for key, value in message.items() if key != "reasoning_content"}
    return message


def _sampling(p: SamplingParams, dialect: Dialect, *, chat: bool) -> dict[str, Any]:
    """What every server knows, where it is not the API's default."""
    found: dict[str, Any] = {}
    if dialect.defaults or p.temperature != 1.0:
        found["temperature"] = p.temperature
    if dialect.defaults or p.top_p != 1.0:
        found["top_p"] = p.top_p
    if p.presence_penalty:
        found["presence_penalty"] = p.presence_penalty
    if p.frequency_penalty:
        found["frequency_penalty"] = p.frequency_penalty
    if p.logit_bias:
        found["logit_bias"] = {str(id): bias for id, bias in p.logit_bias}
    if p.max_tokens is not None:
        found[dialect.most if chat else "max_tokens"] = p.max_tokens
    if p.stop:
        found["stop"] = p.stop
    if p.logprobs is not None:
        found |= {"logprobs": True, "top_logprobs": p.logprobs} if chat else {"logprobs": p.logprobs}
    return found


def _extra_sampling(p: SamplingParams) -> dict[str, Any]:
    """What OpenAI's API does not have and the client set: our API's name for it -> value."""
    given: Mapping[str, tuple[bool, Any]] = {
        "top_k": (p.top_k != _PLAIN.top_k, p.top_k),
        "min_p": (p.min_p != _PLAIN.min_p, p.min_p),
        "repetition_penalty": (p.repetition_penalty != _PLAIN.repetition_penalty, p.repetition_penalty),
        "min_tokens": (p.min_tokens > 0, p.min_tokens),
        "stop_token_ids": (bool(p.stop_token_ids), p.stop_token_ids),
        "include_stop_str_in_output": (p.include_stop, True),
        "ignore_eos": (p.ignore_eos, True),
        "skip_special_tokens": (not p.skip_special_tokens, False),
    }
    return {name: value for name, (is_set, value) in given.items() if is_set}


def _extra_chat(prompt: ChatPrompt) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if prompt.template_kwargs:
        found["chat_template_kwargs"] = prompt.template_kwargs
    if prompt.continue_final_message:
        found["continue_final_message"] = True
    if not prompt.add_generation_prompt:
        found["add_generation_prompt"] = False
    return found


def _add_extras(fields: dict[str, Any], extras: Mapping[str, Any], dialect: Dialect) -> None:
    for name, value in extras.items():
        known = dialect.fields.get(name)
        if known is None:
            raise BadRequest(f"{name} is not understood by this model's server; leave it out", param=name)
        fields[known] = value


def _constraint(grammar: Grammar, dialect: Dialect) -> dict[str, Any]:
    if grammar.kind not in dialect.grammars:
        raise BadGrammar(f"this model's server takes no {grammar.kind} constraint; use response_format with a JSON schema, or none")
    if grammar.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if grammar.kind == "json_schema":
        source = msgspec.Raw(grammar.source.encode())
        if dialect.schema_within:
            return {"response_format": {"type": "json_object", "schema": source}}
        schema = {"name": "answer", "schema": source, "strict": grammar.strict}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    return {"structured_outputs": {"regex" if grammar.kind == "regex" else "grammar": grammar.source}}
