"""Transcript: all that a client was told in one streamed answer, without how it was cut into events. Equal ones are equal answers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from msgspec import Struct


class Choice(Struct):
    """One of n. Ids of tool calls are drawn anew each time and left out."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = []  # (name, arguments)
    logprobs: list[Any] = []
    finish_reason: str = ""


class Transcript(Struct):
    choices: dict[int, Choice] = {}
    usage: tuple[int, int] = (0, 0)  # prompt, completion
    error: str = ""
    n_done: int = 0  # how often the stream said that it is over

    @property
    def whole(self) -> bool:
        """Whether it ended as it should: every choice once, the stream once, and no error."""
        return not self.error and self.n_done == 1 and bool(self.choices) and all(c.finish_reason for c in self.choices.values())


def transcript(events: Iterable[str]) -> Transcript:
    """From the data of server-sent events, of chat or of text completions. Raises ValueError for what is no JSON."""
    out = Transcript()
    for data in events:
        if data == "[DONE]":
            out.n_done += 1
            continue
        chunk = json.loads(data)
        if "error" in chunk:
            out.error = f"{chunk['error'].get('code')}: {chunk['error'].get('message')}"
            continue
        if chunk.get("usage"):
            out.usage = (chunk["usage"]["prompt_tokens"], chunk["usage"]["completion_tokens"])
        for said in chunk["choices"]:
            _take(out.choices.setdefault(said["index"], Choice()), said)
    return out


def _take(choice: Choice, said: dict[str, Any]) -> None:
    delta = said.get("delta") or {}
    choice.text += said.get("text") or delta.get("content") or ""
    choice.reasoning += delta.get("reasoning_content") or ""
    for call in delta.get("tool_calls") or ():
        function = call.get("function") or {}
        if function.get("name"):
            choice.calls.append((function["name"], ""))
        name, arguments = choice.calls[call["index"]]
        choice.calls[call["index"]] = (name, arguments + (function.get("arguments") or ""))
    logprobs = said.get("logprobs")
    if logprobs:
        choice.logprobs += logprobs.get("content") or list(zip(logprobs["tokens"], logprobs["token_logprobs"], strict=True))
    if said.get("finish_reason"):
        if choice.finish_reason:
            raise ValueError("a choice that ended twice")
        choice.finish_reason = said["finish_reason"]
