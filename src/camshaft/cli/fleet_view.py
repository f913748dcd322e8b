"""The view of a fleet that runs: a live table on a terminal, a line for each event elsewhere."""

from __future__ import annotations

import asyncio
import sys

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from camshaft.cli import fleet_table, terminal
from camshaft.config import ServerConfig
from camshaft.gateway.control import Control, FleetStatus
from camshaft.gateway.events import EventLog
from camshaft.observe import log

REFRESH_S = 1.0
SHOWN_EVENTS = 5


async def view(control: Control, events: EventLog, config: ServerConfig) -> None:
    """Until it is cancelled. `config`: how to log."""
    if sys.stderr.isatty():
        await _live(control, events, config)
    else:
        await _lines(events)


async def _lines(events: EventLog) -> None:
    for happening in events.recent():
        terminal.note(fleet_table.told(happening))
    with events.following() as follower:
        while follower is not None:
            terminal.note(fleet_table.told(await follower.next()))


async def _live(control: Control, events: EventLog, config: ServerConfig) -> None:
    """The table stands at the bottom; what is logged scrolls by above it."""
    stream = sys.stderr
    with Live(console=Console(file=stream, highlight=False), auto_refresh=False, redirect_stdout=False, transient=True) as live:
        # By now sys.stderr is one that writes above the table.
        log.configure(config.log_level, sys.stderr, config.log_format)
        try:
            while True:
                live.update(_shown(await control.status(), events), refresh=True)
                await asyncio.sleep(REFRESH_S)
        finally:
            log.configure(config.log_level, stream, config.log_format)


def _shown(status: FleetStatus, events: EventLog) -> Group:
    latest = [fleet_table.told(h) for h in events.recent()[-SHOWN_EVENTS:]]
    lines = [terminal.one_line(line) for line in (*fleet_table.notes(status), *latest)]
    texts = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
    return Group(terminal.grid(fleet_table.rows(status), fleet_table.HEADS), *texts)
