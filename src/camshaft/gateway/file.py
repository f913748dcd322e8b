"""From a TOML file to a FleetSpec: everything that is wrong with it is said in one go, and nothing of it is used then."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

from camshaft.config import ServerConfig, resolve
from camshaft.errors import ConfigError
from camshaft.gateway import check
from camshaft.gateway.limit_config import LimitConfig
from camshaft.gateway.spec import (
    LAYERED,
    MAX_MODELS,
    MAX_TENANTS,
    MAX_VERSIONS,
    FleetSpec,
    GatewayConfig,
    ModelConfig,
    ModelSpec,
    TenantConfig,
    TenantSpec,
    VersionConfig,
    VersionSpec,
)
from camshaft.gateway.table import FileRejected, Problems, Table

MAX_FILE_BYTES = 4_000_000
MAX_KEY_BYTES = 512
Layers = Mapping[str, Mapping[str, object]]  # section -> what was given for it
# Settings of `serve` that have a place of their own here.
_ELSEWHERE = {
    "api_keys": "give each tenant its keys: [tenants.NAME]",
    "served_model_name": "a model is called as its table is: [models.NAME]",
}


def read(path: Path, env: Mapping[str, str] = os.environ) -> FleetSpec:
    """The fleet that `path` describes. Raises ConfigError where it cannot be read, FileRejected for what is wrong in it."""
    return parse(read_text(path), path, env)


def read_text(path: Path) -> str:
    """The file's text, bounded. Raises ConfigError."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {MAX_FILE_BYTES:,} bytes; that is no fleet's file")
        return raw.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not a text file in UTF-8") from None


def parse(text: str, path: Path, env: Mapping[str, str] = os.environ) -> FleetSpec:
    """The fleet that `text` describes, as if it stood in `path`: what it names is looked for beside that. Raises FileRejected."""
    problems = Problems()
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileRejected(path.name, [f"is not TOML: {error}"]) from None
    spec = _fleet(Table("", raw, problems), path)
    check.names(spec, problems)
    check.places(spec, env, problems)
    problems.settle(path.name)
    return spec


def _fleet(top: Table, file: Path) -> FleetSpec:
    folder = file.absolute().parent
    gateway = top.table("gateway")
    for key, hint in _ELSEWHERE.items():
        if gateway.raw(key) is not None:
            gateway.problem(f"{key} has no place here; {hint}")
    server, own = gateway.section(ServerConfig), gateway.section(GatewayConfig)
    gateway.close()
    layers = _layered(top, {})
    models = tuple(_model(name, table, layers, folder) for name, table in top.tables("models", MAX_MODELS))
    limits = _limits(top, {})
    tenants = tuple(_tenant(name, table, limits, folder) for name, table in top.tables("tenants", MAX_TENANTS))
    top.close()
    return FleetSpec(models, server, check.whole_paths(own, file), tenants, _settled(limits))


def _layered(table: Table, above: Layers) -> Layers:
    """The sections that stand in this table over those of the one that it is in: a version's over its model's over the file's."""
    found: dict[str, Mapping[str, object]] = {}
    for name, kind in LAYERED.items():
        inner = table.table(name)
        found[name] = {**above.get(name, {}), **inner.good(kind)}
        inner.close()
    return found


def _limits(table: Table, above: Mapping[str, object]) -> Mapping[str, object]:
    """A tenant's limits over the file's, which are everybody's who has none of their own."""
    inner = table.table("limits")
    found = {**above, **inner.good(LimitConfig)}
    inner.close()
    return found


def _settled(limits: Mapping[str, object]) -> LimitConfig:
    return resolve(LimitConfig, file=limits)[0]


def _model(name: str, table: Table, above: Layers, folder: Path) -> ModelSpec:
    config = table.section(ModelConfig)
    layers = _layered(table, above)
    versions = []
    for version, inner in table.tables("versions", MAX_VERSIONS):
        spec = _version(version, name, inner, layers)
        versions.append(dataclasses.replace(spec, config=check.whole_source(spec.config, folder)))
    table.close()
    return ModelSpec(name, config, tuple(versions))


def _version(name: str, model: str, table: Table, above: Layers) -> VersionSpec:
    layers = _layered(table, above)
    if isinstance(table.raw("command"), str):
        table.replace("command", _words(table))
    config = table.section(VersionConfig)
    tenants, env = table.pairs("tenants", int), table.pairs("env", str)
    table.close()
    return VersionSpec(name, model, config, tenants, env, **{key: resolve(LAYERED[key], file=values)[0] for key, values in layers.items()})


def _words(table: Table) -> list[str]:
    try:
        return shlex.split(table.raw("command"))
    except ValueError as error:
        table.problem(f"command: {str(error).lower()}")
        return []


def _tenant(name: str, table: Table, above: Mapping[str, object], folder: Path) -> TenantSpec:
    config, limits = table.section(TenantConfig), _limits(table, above)
    table.close()
    digests = [found for key in config.keys if (found := _digest(key, table)) is not None]
    if config.keys_file:
        digests += _keys_in(folder / Path(config.keys_file).expanduser(), table)
    return TenantSpec(name, config, tuple(digests), _settled(limits))


def _digest(written: str, table: Table) -> bytes | None:
    scheme, _, digits = written.partition(":")
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if scheme == "sha256" and len(digest) == hashlib.sha256().digest_size:
        return digest
    table.problem("keys holds something other than sha256:... with 64 hexadecimal digits; camshaft ctl key makes a key and its digest")
    return None


def _keys_in(path: Path, table: Table) -> list[bytes]:
    """Digests of the keys in a file of one a line, as themselves or as digests; `#` starts a comment."""
    try:
        text = read_text(path)
    except ConfigError as error:
        table.problem(f"keys_file: {error.message}")
        return []
    found: list[bytes] = []
    for number, line in enumerate(text.splitlines(), 1):
        word = line.split("#", 1)[0].strip()
        if not word:
            continue
        if len(word.split()) > 1 or len(word.encode()) > MAX_KEY_BYTES:
            table.problem(f"keys_file: {path.name}, line {number}: expected one key, or sha256: and its digest")
        elif word.startswith("sha256:"):
            digest = _digest(word, table)
            found += [digest] if digest is not None else []
        else:
            found.append(hashlib.sha256(word.encode()).digest())
    if not found:
        table.problem(f"keys_file: {path.name} holds no key")
    return found
