"""A text completion in OpenAI's older shape, as stream chunks or whole."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec import UNSET

from camshaft.api.plan import Plan
from camshaft.api.sse import TextEvents, struct_event
from camshaft.api.tokens import LegacyLog, joined, of_text
from camshaft.schema.completions import Completion, CompletionChoice, LegacyLogprobs
from camshaft.schema.fields import Usage
from camshaft.types import Delta, Event, Finished, Scored, TokenPrompt

_MARKER = "\x00text\x00"


class CompletionWriter:
    """Implements answering.Writer."""

    def __init__(self, plan: Plan, echoes: Sequence[str] | None) -> None:
        """`echoes`: the prompt's text for each request, where it is to be sent back."""
        self.plan = plan
        self._choices = [_Choice(plan, i, "" if echoes is None else echoes[i]) for i in range(len(plan.requests))]

    def chunk(self, index: int, event: Event) -> bytes:
        return self._choices[index].chunk(event)

    def usage_chunk(self, usage: Usage) -> bytes:
        return struct_event(_chunk(self.plan, (), usage))

    def take(self, index: int, event: Event) -> None:
        self._choices[index].take(event)

    def whole(self, ends: Sequence[Finished], usage: Usage) -> bytes:
        choices = tuple(choice.whole(end) for choice, end in zip(self._choices, ends, strict=True))
        return msgspec.json.encode(_body(self.plan, choices, usage))

    def reason(self, index: int, end: Finished) -> str:
        return end.reason


class _Choice:
    """One choice's text and log-probabilities, the echoed prompt's included, as they come."""

    def __init__(self, plan: Plan, index: int, echo: str) -> None:
        self._plan = plan
        self._index = index
        self._echo = echo  # not yet given out
        self._log = LegacyLog()
        request = plan.requests[index]
        # A special token that a client spells out in text is text; only ids can show one.
        shows_special = isinstance(request.prompt, TokenPrompt) and not request.sampling.skip_special_tokens
        self._hidden: Collection[int] = () if shows_special else plan.model.tokenizer.special_ids
        self._texts: list[str] = []
        self._logprobs: list[LegacyLogprobs] = []
        plain = plan.stream and not plan.with_logprobs
        self._events = TextEvents(_chunk(plan, (self._choice(_MARKER),)), _MARKER) if plain else None

    def take(self, event: Event) -> None:
        """Keep what the event adds."""
        text, logprobs = self._added(event)
        self._texts.append(text)
        if logprobs is not None:
            self._logprobs.append(logprobs)

    def chunk(self, event: Event) -> bytes:
        """The event as stream chunks. Exactly one chunk of a choice, the last, has a finish reason."""
        events = self._events
        if events is not None and not self._echo and isinstance(event, Delta):
            # What nearly every token of nearly every stream takes.
            return events.event(event.text) if event.text else b""
        text, logprobs = self._added(event)
        out = b""
        if text or logprobs is not None:
            out = struct_event(_chunk(self._plan, (self._choice(text, logprobs),))) if events is None else events.event(text)
        if isinstance(event, Finished):
            out += struct_event(_chunk(self._plan, (self._choice("", None, event),)))
        return out

    def whole(self, end: Finished) -> CompletionChoice:
        logprobs = joined(self._logprobs) if self._plan.with_logprobs else None
        return self._choice("".join(self._texts), logprobs, end)

    def _added(self, event: Event) -> tuple[str, LegacyLogprobs | None]:
        """The text and the log-probabilities that come with the event; the echo comes with the first that has any."""
        if isinstance(event, Scored):
            text, self._echo = self._echo, ""
            return text, self._log.add_prompt(event.logprobs, text, self._hidden)
        if not isinstance(event, Delta | Finished):
            return "", None
        text, self._echo = self._echo, ""
        if isinstance(event, Finished):
            return text, None
        entries = of_text(event.logprobs) if self._plan.with_logprobs else ()
        return text + event.text, self._log.add(entries) if entries else None

    def _choice(self, text: str, logprobs: LegacyLogprobs | None = None, end: Finished | None = None) -> CompletionChoice:
        matched = UNSET if end is None or end.matched is None else end.matched
        reason = None if end is None else end.reason
        return CompletionChoice(index=self._index, text=text, logprobs=logprobs, finish_reason=reason, stop_reason=matched)


def _chunk(plan: Plan, choices: tuple[CompletionChoice, ...], usage: Usage | None = None) -> Completion:
    return _body(plan, choices, usage if plan.include_usage else UNSET)


def _body(plan: Plan, choices: tuple[CompletionChoice, ...], usage: Usage | msgspec.UnsetType | None) -> Completion:
    return Completion(
        id=plan.id,
        created=plan.created,
        model=plan.model.name,
        system_fingerprint=plan.model.system_fingerprint,
        choices=choices,
        usage=usage,
    )
