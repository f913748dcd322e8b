"""`camshaft worker`: a replica of a gateway on this machine. Started by it, never by hand."""

from __future__ import annotations

import argparse
import signal
import sys

import uvloop

from camshaft.cli.command import Command
from camshaft.cli.heap import uncollected
from camshaft.cluster.settings import WorkerSettings, read_settings
from camshaft.cluster.worker import EngineSource, work
from camshaft.observe import log


def _arguments(parser: argparse.ArgumentParser) -> None:
    """None: other users of this machine can read a command line."""


def _handler(args: argparse.Namespace) -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when it ends
    settings = read_settings(sys.stdin.fileno())
    log.configure(settings.log_level, sys.stderr)
    return int(uvloop.run(work(settings, _load)))


def _load(settings: WorkerSettings) -> EngineSource:
    with uncollected():
        return EngineSource.load_model(settings)


COMMAND = Command(name="worker", help="a replica of a gateway, which starts it", examples=(), arguments=_arguments, handler=_handler)
