"""`camshaft ctl`: look at a running gateway and change it, over its admin API."""

from __future__ import annotations

import argparse
import hashlib
import re
import secrets
import time
from collections.abc import Callable

import msgspec

from camshaft.cli import fleet_table, terminal
from camshaft.cli.admin_client import AdminClient, Where, find
from camshaft.cli.command import Command
from camshaft.errors import ConfigError
from camshaft.gateway.control import Done, FleetStatus, Revision
from camshaft.gateway.events import Happening

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class _Events(msgspec.Struct):
    events: list[Happening]
    complete: bool


class _Files(msgspec.Struct):
    files: list[Revision]


class _Followed(msgspec.Struct):
    """What a stream of events holds: one of them, or how many were missed."""

    missed: int = 0


def _arguments(parser: argparse.ArgumentParser) -> None:
    _which(parser)
    parser.set_defaults(file="", state_dir="", address="", token_file="", json=False)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, help: str, handler: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", allow_abbrev=False)
        _which(sub)
        sub.set_defaults(action=handler, parser=sub)
        return sub

    action("status", "models, versions, replicas, tenants", _status)
    scale = action("scale", "so many replicas of a version", _scale)
    scale.add_argument("version", metavar="MODEL/VERSION")
    scale.add_argument("replicas", metavar="N", type=int)
    for name, help in (("drain", "let a replica finish and stay away"), ("restart", "replace a replica, or start one that was given up")):
        action(name, help, _on_replica(name)).add_argument("replica", metavar="REPLICA")
    weights = action("weights", "shares of a model's versions", _weights)
    weights.add_argument("model", metavar="MODEL")
    weights.add_argument("weights", metavar="VERSION=WEIGHT", nargs="+")
    events = action("events", "what happened, and why", _events)
    events.add_argument("--since", default="", help="a time ago, such as 90s, 10m, 2h, 1d, or seconds since 1970")
    events.add_argument("--limit", type=int, default=100, help="the latest so many (default: 100)")
    events.add_argument("--follow", action="store_true", help="go on as it happens")
    reload = action("reload", "read the file again", _reload)
    reload.add_argument("--force", action="store_true", help="take a file that was rolled back, too")
    rollback = action("rollback", "back to the accepted file before this one", _rollback)
    rollback.add_argument("revision", metavar="REVISION", nargs="?", type=int, help="back to this one")
    rollback.add_argument("--list", action="store_true", help="show the accepted files and change nothing")
    action("key", "make an API key, and the digest of it for the file", _key)


def _which(parser: argparse.ArgumentParser) -> None:
    """What may be said on either side of the action: which gateway, and how to print. Only what is said is set."""
    unsaid = argparse.SUPPRESS
    file = "the gateway that runs this file (default: camshaft.toml, or the only one that runs)"
    address = "address of an admin API, such as http://127.0.0.1:8001; needs --token-file"
    parser.add_argument("--file", default=unsaid, help=file)
    parser.add_argument("--state-dir", default=unsaid, help="the gateway that keeps its state here")
    parser.add_argument("--address", default=unsaid, help=address)
    parser.add_argument("--token-file", default=unsaid, help="file that holds a token (default: admin.token in the gateway's state_dir)")
    parser.add_argument("--json", action="store_true", default=unsaid, help="print what the gateway answers")


def _client(args: argparse.Namespace) -> AdminClient:
    return find(Where(args.file, args.state_dir, args.address, args.token_file))


def _status(args: argparse.Namespace) -> int:
    status = _client(args).get("/v1/fleet", FleetStatus)
    if args.json:
        return _raw(status)
    terminal.say(f"{status.file}, revision {status.revision}, serves {status.address}/v1")
    terminal.table(fleet_table.rows(status), fleet_table.HEADS)
    if status.tenants:
        terminal.table(fleet_table.tenant_rows(status), fleet_table.TENANT_HEADS)
    for note in fleet_table.notes(status):
        terminal.warn(note)
    return 0


def _scale(args: argparse.Namespace) -> int:
    return _done(args, "/v1/scale", {"version": args.version, "replicas": args.replicas})


def _on_replica(name: str) -> Callable[[argparse.Namespace], int]:
    return lambda args: _done(args, f"/v1/{name}", {"replica": args.replica})


def _weights(args: argparse.Namespace) -> int:
    found: dict[str, int] = {}
    for word in args.weights:
        version, _, weight = word.rpartition("=")
        if not version or not weight.isdecimal() or version in found:
            raise ConfigError(f"{word!r} is not VERSION=WEIGHT, such as v2=10, each version once")
        found[version] = int(weight)
    return _done(args, "/v1/weights", {"model": args.model, "weights": found})


def _reload(args: argparse.Namespace) -> int:
    return _done(args, "/v1/reload", {"force": args.force})


def _rollback(args: argparse.Namespace) -> int:
    if not args.list:
        return _done(args, "/v1/rollback", {"revision": args.revision})
    found = _client(args).get("/v1/files", _Files)
    if args.json:
        return _raw(found)
    marks = {(True, False): "in force", (False, True): "rolled back"}
    rows = [(str(f.revision), _clock(f.at), f.by, marks.get((f.current, f.bad), "")) for f in found.files]
    terminal.table(rows, ("revision", "accepted", "by", ""))
    return 0


def _events(args: argparse.Namespace) -> int:
    client = _client(args)
    since = _since(args.since, time.time())
    if not args.follow:
        found = client.get(f"/v1/events?since={since:f}&limit={args.limit}", _Events)
        for happening in found.events:
            _show(happening, args.json)
        if not found.complete:
            terminal.warn("the state on disk cannot be read; events of longer ago are missing")
        return 0
    limit = args.limit
    while True:
        # The gateway ends a stream now and then; what was shown already is not asked for again.
        for payload in client.follow(f"/v1/events?follow=1&since={since:f}&limit={limit}"):
            if missed := msgspec.json.decode(payload, type=_Followed).missed:
                terminal.warn(f"{missed} events came faster than they could be shown")
                continue
            happening = msgspec.json.decode(payload, type=Happening)
            _show(happening, args.json)
            since, limit = happening.at, 10_000


def _key(args: argparse.Namespace) -> int:
    key = f"sk-{secrets.token_urlsafe(32)}"
    digest = f"sha256:{hashlib.sha256(key.encode()).hexdigest()}"
    if args.json:
        terminal.say(msgspec.json.encode({"key": key, "digest": digest}).decode())
    else:
        terminal.say(f"key for the client, shown only now:  {key}")
        terminal.say(f'line for its [tenants.NAME] table:   keys = ["{digest}"]')
    return 0


def _done(args: argparse.Namespace, path: str, body: dict[str, object]) -> int:
    done = _client(args).post(path, body, Done)
    if args.json:
        return _raw(done)
    for line in done.changes or ("nothing was different",):
        terminal.say(line)
    return 0


def _raw(found: object) -> int:
    terminal.say(msgspec.json.encode(found).decode())
    return 0


def _show(happening: Happening, as_json: bool) -> None:
    if as_json:
        _raw(happening)
        return
    terminal.say(terminal.one_line(f"{_clock(happening.at)} {fleet_table.told(happening)}"))


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _since(given: str, now: float) -> float:
    """Seconds since the epoch. Raises ConfigError."""
    if not given:
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", given)
    if match is None:
        raise ConfigError(f"--since takes a time ago, such as 90s, 10m, 2h or 1d, or seconds since 1970, not {given!r}")
    number, unit = float(match[1]), match[2]
    return max(0.0, now - number * _UNITS[unit]) if unit else number


def _handler(args: argparse.Namespace) -> int:
    found: int = args.action(args)
    return found


COMMAND = Command(
    name="ctl",
    help="look at a running gateway and change it",
    examples=(
        "camshaft ctl status",
        "camshaft ctl scale small/v1 3",
        "camshaft ctl weights small v1=80 v2=20",
        "camshaft ctl events --since 10m --follow",
        "camshaft ctl rollback --list",
    ),
    arguments=_arguments,
    handler=_handler,
)
