"""What the `camshaft` command starts: a Ctrl-C during the moment that imports take ends it without a word."""

from __future__ import annotations

import os
import signal
import sys


def main() -> int:
    """The same as `camshaft.cli.main.main`, quiet while it imports what the command needs."""
    quiet = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if quiet:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # numpy's linear algebra, of which nothing here makes use, would start a thread for each core when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from camshaft.cli.heap import uncollected

    with uncollected():
        from camshaft.cli import main as command

        args = command.parse()
    if quiet:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return command.run(args)


if __name__ == "__main__":
    sys.exit(main())
