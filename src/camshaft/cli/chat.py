"""`camshaft chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import asyncio

from camshaft.cli import session, terminal
from camshaft.cli.command import Command, model_argument
from camshaft.errors import BadRequest, CamshaftError
from camshaft.types import ChatPrompt


def _arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    parser.add_argument("--system", default="", metavar="TEXT", help="a system message to begin with")
    session.sampling_flags(parser)
    session.engine_flags(parser)


def _handler(args: argparse.Namespace) -> int:
    return asyncio.run(_talk(args))


async def _talk(args: argparse.Namespace) -> int:
    async with session.opened(args, args.model) as live:
        if not live.can_chat:
            raise BadRequest("this model has no chat template; use camshaft run --raw, or pick an instruct model")
        history = [{"role": "system", "content": args.system}] if args.system else []
        terminal.note("type a message; /clear forgets the conversation, /quit or Ctrl-D ends it")
        while (line := await _read_line()) is not None:
            if line == "/quit":
                break
            if line == "/clear":
                history = history[:1] if args.system else []
                continue
            if not line:
                continue
            asked = [*history, {"role": "user", "content": line}]
            try:
                answer = await live.answer(ChatPrompt(tuple(asked)), session.sampling(args))
            except CamshaftError as error:
                # The conversation goes on: a prompt that grew too long is cured by /clear, not by losing the terminal.
                terminal.fail(error.message)
                continue
            history = [*asked, {"role": "assistant", "content": answer.text}]
            terminal.note(answer.speed_line())
    return 0


async def _read_line() -> str | None:
    """The next line, stripped; None at the end of input. Read in a thread, so that Ctrl-C reaches the event loop."""
    try:
        return (await asyncio.to_thread(input, "> ")).strip()
    except EOFError:
        return None


COMMAND = Command(
    name="chat",
    help="talk with a model",
    examples=("camshaft chat", 'camshaft chat smollm2-135m --system "Answer in one sentence."'),
    arguments=_arguments,
    handler=_handler,
)
