"""`camshaft run`: one question, one streamed answer."""

from __future__ import annotations

import argparse
import asyncio
import sys

from camshaft.cli import session, terminal
from camshaft.cli.command import Command
from camshaft.errors import BadRequest
from camshaft.types import ChatPrompt, TextPrompt


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="[MODEL] QUESTION", help="what to ask; with two words or more, the first names the model; - reads stdin"
    )
    parser.add_argument("--raw", action="store_true", help="complete the text as it is, with no chat template")
    session.sampling_flags(parser)
    session.engine_flags(parser)


def _split(words: list[str]) -> tuple[str, str]:
    if not words:
        raise BadRequest('nothing was asked; try: camshaft run "What is the capital of France?"')
    if len(words) > 2:
        raise BadRequest('put the question in quotes: camshaft run [MODEL] "question"')
    model, question = ("", words[0]) if len(words) == 1 else (words[0], words[1])
    question = sys.stdin.read() if question == "-" else question
    if not question.strip():
        raise BadRequest("the question is empty; put it in quotes, or pipe it in and write -")
    return model, question


def _handler(args: argparse.Namespace) -> int:
    model, question = _split(args.words)
    return asyncio.run(_ask(args, model, question))


async def _ask(args: argparse.Namespace, model: str, question: str) -> int:
    async with session.opened(args, model) as live:
        raw = args.raw or not live.can_chat
        if raw and not args.raw:
            terminal.note("this model has no chat template: completing the text as it is")
        prompt = TextPrompt(question) if raw else ChatPrompt(({"role": "user", "content": question},))
        answer = await live.answer(prompt, session.sampling(args))
        terminal.note(answer.speed_line())
    return 0


COMMAND = Command(
    name="run",
    help="ask a model one question",
    examples=(
        'camshaft run "What is the capital of France?"',
        'camshaft run ./model.gguf "Write a haiku about valves." --temperature 0.8',
        'camshaft run gemma3-270m --raw "The first engine was"',
        "git diff | camshaft run smollm2-135m - --max-tokens 200",
    ),
    arguments=_arguments,
    handler=_handler,
)
