"""The view of a fleet that runs: a live table at the bottom of a terminal, below what is logged. Elsewhere the log says it all."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from camshaft.cli import fleet_table, terminal
from camshaft.config import ServerConfig
from camshaft.gateway.control import Control, FleetStatus
from camshaft.observe import log

REFRESH_S = 1.0


async def view(control: Control, config: ServerConfig) -> None:
    """Until it is cancelled, on a terminal. `config`: how to log."""
    stream = sys.stderr
    if not stream.isatty():
        return
    with Live(console=Console(file=stream, highlight=False), auto_refresh=False, redirect_stdout=False, transient=True) as live:
        # By now sys.stderr is one that writes above the table.
        log.configure(config.log_level, sys.stderr, config.log_format)
        try:
            while True:
                live.update(_shown(await control.status()), refresh=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            log.configure(config.log_level, stream, config.log_format)


def _shown(status: FleetStatus) -> Group:
    lines = [terminal.one_line(line) for line in fleet_table.notes(status)]
    texts = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
    return Group(terminal.grid(fleet_table.rows(status), fleet_table.HEADS), *texts)
