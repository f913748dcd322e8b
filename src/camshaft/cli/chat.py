"""`camshaft chat`: a conversation in the terminal."""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack

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
    # Lines are read between the runs of the event loop: a thread that waits for a line would keep Ctrl-C from ending the program.
    with asyncio.Runner() as runner:
        held = AsyncExitStack()
        try:
            live = runner.run(held.enter_async_context(session.opened(args, args.model)))
            _talk(live, args, runner)
        finally:
            runner.run(held.aclose())
    return 0


def _talk(live: session.Session, args: argparse.Namespace, runner: asyncio.Runner) -> None:
    if not live.can_chat:
        raise BadRequest("this model has no chat template; use camshaft run --raw, or pick an instruct model")
    sampling = session.sampling(args)
    history = [{"role": "system", "content": args.system}] if args.system else []
    terminal.note("type a message; /clear forgets the conversation, /quit or Ctrl-D ends it")
    while (line := _read_line()) is not None and line != "/quit":
        if line == "/clear":
            history = history[:1] if args.system else []
            continue
        if not line:
            continue
        asked = [*history, {"role": "user", "content": line}]
        try:
            answer = runner.run(live.answer(ChatPrompt(tuple(asked)), sampling))
        except CamshaftError as error:
            # The conversation goes on: a prompt that grew too long is cured by /clear, not by losing the terminal.
            terminal.fail(error.message)
            continue
        history = [*asked, {"role": "assistant", "content": answer.text}]
        terminal.note(answer.speed_line())


def _read_line() -> str | None:
    """The next line, stripped; None at the end of input."""
    try:
        return input("> ").strip()
    except EOFError:
        terminal.say("")  # the shell's prompt gets a line of its own
        return None


COMMAND = Command(
    name="chat",
    help="talk with a model",
    examples=("camshaft chat", 'camshaft chat smollm2-135m --system "Answer in one sentence."'),
    arguments=_arguments,
    handler=_handler,
)
