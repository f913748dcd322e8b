"""Session: a model opened for the terminal, and the flags that `run` and `chat` share."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from camshaft.cli import terminal
from camshaft.cli.heap import uncollected
from camshaft.config import EngineConfig, add_flags, resolve
from camshaft.engine.async_engine import AsyncEngine
from camshaft.errors import BadRequest, from_info
from camshaft.types import Delta, Failed, Finished, Prompt, Request, SamplingParams, Usage


@dataclass
class Answer:
    """What came back, and how fast. Seconds."""

    asked_at: float
    text: str = ""
    usage: Usage = field(default_factory=lambda: Usage(0, 0, 0))
    first_at: float = 0.0
    done_at: float = 0.0

    def speed_line(self) -> str:
        """Prompt and answer sizes with their speeds, for people."""
        ttft = self.first_at - self.asked_at
        rest = self.done_at - self.first_at
        speed = f"{(self.usage.n_output - 1) / rest:.0f} tok/s" if self.usage.n_output > 1 and rest > 0 else "too short to time"
        cached = f", {self.usage.n_cached} of them cached" if self.usage.n_cached else ""
        return (
            f"{self.usage.n_prompt} prompt tokens{cached}, first token after {ttft * 1000:.0f} ms, {self.usage.n_output} tokens at {speed}"
        )


class Session:
    """One open engine and the way to ask it something with the answer streamed to the terminal."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._count = 0

    @property
    def can_chat(self) -> bool:
        return self._engine.model.can_chat

    async def answer(self, prompt: Prompt, sampling: SamplingParams) -> Answer:
        """Streams the answer to stdout. Raises the error that ended it, if one did."""
        self._count += 1
        answer = Answer(asked_at=time.monotonic())
        async for event in self._engine.stream(Request(id=f"cli-{self._count}", prompt=prompt, sampling=sampling, session="cli")):
            if isinstance(event, Delta):
                answer.first_at = answer.first_at or time.monotonic()
                answer.text += event.text
                terminal.write(event.text)
            elif isinstance(event, Failed):
                raise from_info(event.error)
            elif isinstance(event, Finished):
                answer.usage = event.usage
        answer.done_at = time.monotonic()
        terminal.say("")
        return answer


@asynccontextmanager
async def opened(args: argparse.Namespace, model: str) -> AsyncIterator[Session]:
    """A session on `model`, fetched first if need be, closed at the end whatever happens."""
    config, _ = resolve(EngineConfig, cli=vars(args), env=os.environ)
    path = terminal.fetch(model)
    with uncollected():
        engine = AsyncEngine.from_model(str(path), config)
    for warning in engine.model.warnings:
        terminal.warn(warning)
    try:
        yield Session(engine)
    finally:
        await engine.close()


def engine_flags(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, EngineConfig)


def sampling_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: 0)")
    group.add_argument("--top-p", type=float, default=1.0, help="keep the likeliest tokens up to this probability (default: 1)")
    group.add_argument("--top-k", type=int, default=0, help="keep the k likeliest tokens; 0 keeps all (default: 0)")
    group.add_argument(
        "--min-p", type=float, default=0.0, help="drop tokens below this share of the likeliest one's probability (default: 0)"
    )
    group.add_argument("--repetition-penalty", type=float, default=1.0, help="above 1 discourages repeats (default: 1)")
    group.add_argument("--seed", type=_seed, default=None, help="makes a sampled answer repeatable")
    group.add_argument("--max-tokens", type=int, default=512, help="longest answer (default: 512)")


def _seed(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"takes a whole number of 0 or more, not {text!r}")
    return int(text)


def sampling(args: argparse.Namespace) -> SamplingParams:
    """The parameters that the flags ask for; ranges are checked where every request's are."""
    if args.max_tokens < 1:
        raise BadRequest("--max-tokens must be at least 1")
    return SamplingParams(
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        seed=args.seed,
        max_tokens=args.max_tokens,
    )
