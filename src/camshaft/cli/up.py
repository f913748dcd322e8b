"""`camshaft up`: the gateway that a file describes, and its replicas on this machine."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from camshaft.api.listener import bind
from camshaft.cli import terminal
from camshaft.cli.command import Command
from camshaft.config import ServerConfig, resolve
from camshaft.errors import ConfigError
from camshaft.gateway import describe, file
from camshaft.gateway.folder import Running, running
from camshaft.gateway.spec import FleetSpec
from camshaft.gateway.table import FileRejected
from camshaft.observe import log

if TYPE_CHECKING:
    from camshaft.gateway.events import EventLog
    from camshaft.gateway.fleet import Fleet

LATE_S = 5.0  # from listening until what is missing is said
_OVERRIDES = ("host", "port", "log_level")  # settings of [gateway] that the command line may say


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", nargs="?", default="camshaft.toml", help="the fleet (default: camshaft.toml)")
    parser.add_argument("--check", action="store_true", help="say what the file would run, or everything that is wrong with it, and leave")
    for name in _OVERRIDES:
        parser.add_argument(f"--{name.replace('_', '-')}", dest=name, help=f"instead of {name} in [gateway]")


def _handler(args: argparse.Namespace) -> int:
    path = Path(args.file).absolute()
    if not path.exists():
        raise ConfigError(f"{path}: No such file; camshaft up FILE takes the file of a fleet, and docs/gateway.md says what stands in it")
    text = file.read_text(path)
    over = partial(_overridden, given=vars(args))
    try:
        spec = over(file.parse(text, path))
    except FileRejected as error:
        for problem in error.problems:
            terminal.fail(f"{path.name}: {problem}")
        return 1
    if args.check:
        for line in describe.describe(spec):
            terminal.say(line)
        return 0
    for line in describe.warnings(spec):
        terminal.warn(line.removeprefix("warning: "))
    if other := running(Path(spec.gateway.state_dir)):
        change = f"camshaft ctl --file {other.file} reload"
        raise ConfigError(f"process {other.pid} serves {other.file} already, on {other.address}/v1; to change it: {change}")
    # Loading takes a while; an address that is taken is better said before.
    bind(spec.server.host, spec.server.port).close()
    try:
        bind(spec.gateway.admin_host, spec.gateway.admin_port).close()
    except ConfigError as error:
        raise ConfigError(f"the admin API {error.message.partition(';')[0]}; give another admin_host or admin_port") from None
    uvloop.run(_serve(path, text, spec, over))
    return 0


def _overridden(spec: FleetSpec, given: Mapping[str, object]) -> FleetSpec:
    """What the command line says goes before what the file says. Raises ConfigError."""
    said = {name: given[name] for name in _OVERRIDES if given[name] is not None}
    parsed, _ = resolve(ServerConfig, cli=said)
    return replace(spec, server=replace(spec.server, **{name: getattr(parsed, name) for name in said}))


async def _serve(path: Path, text: str, spec: FleetSpec, over: Callable[[FleetSpec], FleetSpec]) -> None:
    from camshaft.cli.fleet_view import view  # imports what a check has no need of
    from camshaft.cli.gateway import Source, opened

    began = time.monotonic()
    log.configure(spec.server.log_level, sys.stderr, spec.server.log_format)
    for version in spec.versions:
        if version.config.engine == "camshaft":
            await asyncio.to_thread(terminal.fetch, version.config.source)

    async with opened(Source(path, text, spec, over)) as gateway:
        beside = [asyncio.ensure_future(view(gateway.operator, spec.server))]

        def listening(found: Running) -> None:
            beside.append(asyncio.ensure_future(_tell_ready(gateway.fleet, gateway.events, f"{found.address}/v1", path, began)))
            terminal.note(f"listening on {found.address}/v1, admin API on {found.admin}; requests are answered once replicas are ready")

        try:
            await gateway.serve(listening)
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)


async def _tell_ready(fleet: Fleet, events: EventLog, address: str, path: Path, began: float) -> None:
    """Say so once every version takes traffic, not before: who waits for this line sends requests then.

    What is missing is said where that takes long, and again when something else is.
    """
    told: set[str] = set()
    late_at = time.monotonic() + LATE_S
    with events.following() as follower:
        assert follower is not None  # nobody else can follow yet
        while missing := fleet.missing:
            left_s = late_at - time.monotonic()
            if left_s <= 0:
                for line in [line for line in missing if line not in told]:
                    terminal.warn(f"not ready yet: {line}")
                told = {*missing}
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(follower.next(), left_s if left_s > 0 else None)
    terminal.ready(time.monotonic() - began, address, f"camshaft ctl --file {shlex.quote(str(path))} status")


COMMAND = Command(
    name="up",
    help="run the gateway and the replicas that a file describes",
    examples=(
        "camshaft up camshaft.toml",
        "camshaft up camshaft.toml --check",
        "camshaft up examples/versions.toml --port 8080",
    ),
    arguments=_arguments,
    handler=_handler,
)
