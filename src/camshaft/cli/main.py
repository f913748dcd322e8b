"""`camshaft`: find the command, run it, turn every failure into one line that says what to do."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from camshaft.cli import terminal
from camshaft.cli.command import Command
from camshaft.config import suggest
from camshaft.errors import CamshaftError

# Where each command is. A call imports its own command and no other: what all of them need together takes longer to import than a server
# should to start.
_HOMES = {
    "pull": ("models", "PULL"), "list": ("models", "LIST"), "inspect": ("models", "INSPECT"), "run": ("run", "COMMAND"),
    "chat": ("chat", "COMMAND"), "tokenize": ("tokenize", "COMMAND"), "serve": ("serve", "COMMAND"), "bench": ("bench", "COMMAND"),
    "up": ("up", "COMMAND"), "ctl": ("ctl", "COMMAND"),
}  # fmt: skip
NAMES = tuple(_HOMES)
_HIDDEN = {"worker": ("worker", "COMMAND")}  # what processes of ours say to each other


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        terminal.say(terminal.version())
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """Ends wrong usage with one line, and the nearest word that would have been right."""

    def error(self, message: str) -> NoReturn:
        if wrong := _INVALID_CHOICE.match(message):
            known = re.findall(r"[a-z]+", wrong["known"])
            what = f"{'an' if wrong['what'][0] in 'AEIOU' else 'a'} {wrong['what'].lower()}"
            message = f"{wrong['name']!r} is not {what}{suggest(wrong['name'], known) or '; there are ' + ', '.join(known)}"
        terminal.fail(f"{message} ({self.prog} --help)")
        self.exit(2)


_INVALID_CHOICE = re.compile(r"argument (?P<what>[A-Z]+): invalid choice: '(?P<name>.*)' \(choose from (?P<known>.*)\)", re.DOTALL)


def find(name: str) -> Command:
    """The command of this name, one of `NAMES`."""
    module, attribute = (_HOMES | _HIDDEN)[name]
    found: Command = getattr(import_module(f"camshaft.cli.{module}"), attribute)
    return found


def build_parser(names: Sequence[str] = NAMES) -> argparse.ArgumentParser:
    """The tree of these commands."""
    parser = _Parser(
        prog="camshaft",
        description="Serves large language models on the machine you have.",
        epilog='Start here:  camshaft run "What is the capital of France?"',
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and leave")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in map(find, names):
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.help[0].upper() + command.help[1:] + ".",
            epilog="examples:\n" + "\n".join(f"  {e}" for e in command.examples),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.arguments(sub)
        sub.set_defaults(handler=command.handler, parser=sub)
    return parser


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The arguments of one call. Exits with 2 where they are not understood."""
    given = sys.argv[1:] if argv is None else argv
    parser = build_parser(given[:1] if given and given[0] in _HOMES | _HIDDEN else NAMES)
    if not given:
        parser.print_help()
        parser.exit()
    args, rest = parser.parse_known_args(argv)
    # argparse ends a list of words at the first flag; people write them on both sides: run MODEL --raw "question".
    words = [word for word in rest if word == "-" or not word.startswith("-")]
    if rest and (words != rest or "words" not in args):
        flags = re.findall(r"--[a-z][a-z-]*", args.parser.format_help())
        args.parser.error(f"unrecognized arguments: {' '.join(rest)}{suggest(rest[0].partition('=')[0], flags)}")
    if rest:
        args.words += words
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """One call, from its arguments to its exit status."""
    return run(parse(argv))


def run(args: argparse.Namespace) -> int:
    """Exit status: 0 done, 1 a failure that was explained, 2 wrong usage, 130 interrupted."""
    try:
        return int(args.handler(args))
    except KeyboardInterrupt:
        terminal.note("interrupted")
        return 130
    except CamshaftError as error:
        terminal.fail(error.message)
        return 1
    except BrokenPipeError:
        # The reader (head, less) left; point stdout elsewhere so that the interpreter's own flush stays quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # The disk is full, or the terminal is gone: the system's word on it is enough.
        terminal.fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
        return 1
    except Exception as error:
        if os.environ.get("CAMSHAFT_DEBUG"):
            raise
        terminal.fail(f"unexpected {type(error).__name__}: {error} (set CAMSHAFT_DEBUG=1 for the traceback; this is a bug worth reporting)")
        return 1


if __name__ == "__main__":
    sys.exit(main())
