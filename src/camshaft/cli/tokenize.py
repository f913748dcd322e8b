"""`camshaft tokenize`: see what a model's tokenizer makes of a text."""

from __future__ import annotations

import argparse
import sys

from camshaft.cli import terminal
from camshaft.cli.command import Command, model_argument
from camshaft.tokenizer import Tokenizer


def _arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    parser.add_argument("--text", default=None, help="the text; without it, stdin is read")
    parser.add_argument("--special", action="store_true", help="add the special tokens that the model expects (BOS)")
    parser.add_argument("--ids", action="store_true", help="print the ids alone, on one line")


def _handler(args: argparse.Namespace) -> int:
    tokenizer = Tokenizer.from_file(terminal.fetch(args.model))
    text = sys.stdin.read() if args.text is None else args.text
    ids = tokenizer.encode(text, add_special_tokens=args.special)
    if args.ids:
        terminal.say(" ".join(map(str, ids)))
    else:
        for token in ids:
            terminal.say(f"{token:>7}  {tokenizer.token_bytes(token)!r}")
        terminal.note(f"{len(ids)} tokens, {len(text)} characters")
    return 0


COMMAND = Command(
    name="tokenize",
    help="show a text as tokens",
    examples=('camshaft tokenize --text "Hello, world"', "camshaft tokenize gemma3-270m --ids < README.md"),
    arguments=_arguments,
    handler=_handler,
)
