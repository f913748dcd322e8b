"""Output: sampled ids become text, log-probabilities and, at the right moment, a Delta."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from camshaft.config import EngineConfig
from camshaft.engine.codec import Codec
from camshaft.errors import BadRequest
from camshaft.tokenizer.stops import StopMatcher
from camshaft.types import Delta, RawLogprob, Request, Resume, TokenLogprob, TopLogprob

# Where a reader pauses anyway: a flush there looks natural.
BREAKS = frozenset(".,;:!?…\n。、，；：！？」』）】》")


class Ending(NamedTuple):
    """Why an output is over. `matched`: the stop string or stop token id, None for end of sequence and for length."""

    reason: Literal["stop", "length"]
    matched: str | int | None = None


class FlushRules(NamedTuple):
    """When held text is sent: after so many tokens, so many seconds, or at a break. Zero tokens or seconds: each token at once."""

    tokens: int
    seconds: float
    breaks: bool

    @classmethod
    def of(cls, config: EngineConfig) -> FlushRules:
        if config.flush_tokens == 0 or config.flush_ms == 0:
            return cls(1, 0.0, False)
        return cls(config.flush_tokens, config.flush_ms / 1000, config.flush_breaks)


class Resumed(NamedTuple):
    """Where a stream that comes from elsewhere stands."""

    ending: Ending | None = None  # that its last token brought: only the terminal event was lost
    n_ahead: int = 0  # characters that the client has and that its ids alone have not given: of a tail that only an end brings out


class Output:
    """One ledger per choice: ids, text and log-probabilities advance together. Engine thread only."""

    def __init__(self, request: Request, prompt_ids: Sequence[int], codec: Codec, rules: FlushRules) -> None:
        params = request.sampling
        self.codec = codec
        self._rules = rules
        self._stream = codec.detokenizer(prompt_ids, skip_special_tokens=params.skip_special_tokens)
        self._stops = StopMatcher(params.stop, include_stop=params.include_stop) if params.stop else None
        self._include_stop = params.include_stop
        self.min_tokens = params.min_tokens
        self.ends: dict[int, Ending] = {} if params.ignore_eos else dict.fromkeys(codec.eos_ids, Ending("stop"))
        self.ends |= {id: Ending("stop", id) for id in params.stop_token_ids}
        self.n = 0  # ids so far, those of a resumed stream included
        self.held_since: float | None = None  # when the oldest token that waits came
        self._text: list[str] = []
        self._ids: list[int] = []
        self._logprobs: list[TokenLogprob] = []
        self._shown = False  # whether any text has been sent
        self._at_break = False  # whether what is held has a natural break
        self.resumed = Resumed() if request.resume is None else self._replay(request.resume)

    def push(self, id: int, raw: RawLogprob | None, now: float) -> Ending | None:
        """One more sampled token. The ending that its id or its text brings, if any."""
        self.n += 1
        self._ids.append(id)
        if self.held_since is None:
            self.held_since = now
        ending = self.ends.get(id)
        unseen = ending is not None and not self._include_stop
        if raw is not None:
            self._logprobs.append(token_logprob(raw, self.codec, ends=unseen))
        return ending if unseen else self._read(id) or ending

    def _read(self, id: int) -> Ending | None:
        """The text of one more token. The ending that it brings, if any."""
        text = self._stream.push((id,))
        if not text:
            return None
        ending, stops = None, self._stops
        if stops is not None:
            text = stops.push(text, may_match=self.n > self.min_tokens)
            if stops.matched is not None:
                ending = Ending("stop", stops.matched)
        if text:
            self._text.append(text)
            if not self._at_break and not BREAKS.isdisjoint(text):
                self._at_break = True
        return ending

    def is_due(self, now: float) -> bool:
        """Whether what is held should be sent now."""
        since = self.held_since
        if since is None:
            return False
        rules = self._rules
        return now - since >= rules.seconds or len(self._ids) >= rules.tokens or (self._at_break and rules.breaks) or not self._shown

    def flush(self) -> Delta | None:
        """What is held, as one event; None where nothing is."""
        if self.held_since is None:
            return None
        delta = Delta("".join(self._text), tuple(self._ids), tuple(self._logprobs))
        self._text.clear()
        self._ids.clear()
        self._logprobs.clear()
        self.held_since = None
        self._at_break = False
        self._shown = self._shown or delta.text != ""
        return delta

    def finish(self, ending: Ending) -> Delta | None:
        """The last of it: what was held back as the possible beginning of a stop string goes out, half a character does not."""
        if not isinstance(ending.matched, str):
            tail = self._stream.finish().removesuffix("\ufffd")
            if self._stops is not None:
                tail = self._stops.push(tail) + self._stops.finish()
            if tail := tail[self.resumed.n_ahead :]:
                self._text.append(tail)
                if self.held_since is None:
                    self.held_since = 0.0
        return self.flush()

    def _replay(self, resume: Resume) -> Resumed:
        """Run over what was generated elsewhere; text beyond what the client has is held for the first Delta, the ids are not repeated.

        Raises BadRequest for ids that go on after their end.
        """
        ending: Ending | None = None
        for id in resume.ids:
            if ending is not None:
                raise BadRequest(f"resume goes on after its end at token {self.n}; give the ids of one answer", param="resume")
            self.n += 1
            ending = self.ends.get(id)
            if ending is None or self._include_stop:
                ending = self._read(id) or ending
        text, self._at_break = "".join(self._text), False
        self._text = [rest] if (rest := text[resume.n_chars_sent :]) else []
        self.held_since = 0.0 if rest else None
        return Resumed(ending, max(0, resume.n_chars_sent - len(text)))


def token_logprob(raw: RawLogprob, codec: Codec, *, ends: bool = False) -> TokenLogprob:
    """A runner's log-probability with the bytes that only a tokenizer knows. `ends`: it ended the output and is no part of its text."""
    top = tuple([TopLogprob(id, codec.token_bytes(id), logprob) for id, logprob in raw.top])
    return TokenLogprob(raw.id, codec.token_bytes(raw.id), raw.logprob, top, ends)
