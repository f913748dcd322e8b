"""Whether a file's parts agree with each other, and with this machine."""

from __future__ import annotations

import dataclasses
import ipaddress
import re
import shutil
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from camshaft.config import suggest
from camshaft.formats import catalogue, hub
from camshaft.gateway.folder import default_folder
from camshaft.gateway.spec import MAX_REPLICAS, MAX_WEIGHT, FleetSpec, GatewayConfig, ModelSpec, VersionConfig, VersionSpec
from camshaft.gateway.table import Problems
from camshaft.observe import trace

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")  # of a model: what clients write into JSON and URLs
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # of versions and tenants: labels of metrics, parts of names of replicas
_ENV = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def names(spec: FleetSpec, problems: Problems) -> None:
    """Notes names that clash or lead nowhere, and numbers that make no sense together."""
    if not spec.models:
        problems.add("models", "is empty; describe a model: [models.NAME.versions.VERSION]")
    _model_names(spec, problems)
    _fallbacks(spec, problems)
    for model in spec.models:
        _versions(model, spec, problems)
    _tenants(spec, problems)
    n_replicas = sum(v.config.replicas for v in spec.versions)
    if n_replicas > MAX_REPLICAS:
        problems.add("models", f"asks for {n_replicas} replicas in all; at most {MAX_REPLICAS} are run")
    server, gateway = spec.server, spec.gateway
    if server.port == gateway.admin_port != 0 and _same_host(server.host, gateway.admin_host):
        problems.add("gateway", f"port and admin_port are both {server.port}; the admin API needs a port of its own")
    if bool(gateway.tls_cert) != bool(gateway.tls_key):
        problems.add("gateway", f"{'tls_key' if gateway.tls_cert else 'tls_cert'} is missing; TLS needs the certificate and its key")
    for origin in gateway.cors_origins:
        _origin(origin, problems)


def _same_host(a: str, b: str) -> bool:
    return a == b or not {a, b}.isdisjoint({"0.0.0.0", "::", ""})


def _origin(origin: str, problems: Problems) -> None:
    parts = urlsplit(origin)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path or parts.query or "*" in origin:
        problems.add("gateway", f'cors_origins takes scheme, host and port, such as "https://app.example.com", not {origin[:100]!r}')


def _path(model: ModelSpec | str, version: str = "") -> str:
    name = model if isinstance(model, str) else model.name
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'"{name[:100]}"'
    return f"models.{shown}.versions.{version[:100]}" if version else f"models.{shown}"


def _model_names(spec: FleetSpec, problems: Problems) -> None:
    owners = {m.name: m.name for m in spec.models}
    for model in spec.models:
        if not _NAME.fullmatch(model.name):
            problems.add(_path(model), "is no name for a model; take up to 128 letters, digits and . _ : / @ + -")
        for alias in model.config.aliases:
            if not _NAME.fullmatch(alias):
                problems.add(_path(model), f"{alias[:100]!r} is no name; take up to 128 letters, digits and . _ : / @ + -")
            if owners.setdefault(alias, model.name) != model.name or alias == model.name:
                problems.add(_path(model), f"the alias {alias!r} is the name of {owners[alias]!r} already")
    defaults = [m.name for m in spec.models if m.config.default]
    for name in defaults[1:]:
        problems.add(_path(name), f"is a default model, and {defaults[0]!r} is too; there can be one")


def _fallbacks(spec: FleetSpec, problems: Problems) -> None:
    known = {m.name: m.config.fallbacks for m in spec.models}
    for model in spec.models:
        for name in model.config.fallbacks:
            if name not in known:
                problems.add(_path(model), f"the fallback {name[:100]!r} is no model of this file{suggest(name, known)}")
        circle = _circle(model.name, known)
        # Said once for each circle, at the first of its models by name.
        if circle and min(circle) == model.name:
            problems.add(_path(model), f"its fallbacks lead back to it: {' -> '.join((*circle, model.name))}")


def _circle(start: str, next_of: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """A way from `start` back to it, or nothing."""
    seen: set[str] = set()
    todo: list[tuple[str, ...]] = [(start,)]
    while todo:
        trail = todo.pop()
        for name in next_of.get(trail[-1], ()):
            if name == start:
                return trail
            if name not in seen:
                seen.add(name)
                todo.append((*trail, name))
    return ()


def _versions(model: ModelSpec, spec: FleetSpec, problems: Problems) -> None:
    if not model.versions:
        problems.add(_path(model), f"has no version; describe one: [{_path(model, 'v1')}]")
        return
    tenants = {t.name for t in spec.tenants}
    for version in model.versions:
        path = _path(model, version.name)
        if not _PLAIN.fullmatch(version.name):
            problems.add(path, "is no name for a version; take up to 64 letters, digits and . _ -")
        if version.config.weight and not version.config.replicas:
            problems.add(path, f"has weight {version.config.weight} and no replica; give it replicas, or weight = 0")
        for tenant, weight in version.tenants:
            if tenant not in tenants:
                problems.add(f"{path}.tenants", f"{tenant[:100]!r} is no tenant of this file{suggest(tenant, tenants)}")
            if not 0 <= weight <= MAX_WEIGHT:
                problems.add(f"{path}.tenants", f"{tenant[:100]} must lie between 0 and {MAX_WEIGHT}, not {weight}")
        _engine(version, path, problems)
    if not any(v.config.weight for v in model.versions):
        problems.add(_path(model), "all its versions have weight 0, so that nobody would be answered")
    for tenant in sorted({t for v in model.versions for t, _ in v.tenants} & tenants):
        if not any(weight for _, weight in model.weights(tenant)):
            problems.add(_path(model), f"all its versions have weight 0 for the tenant {tenant!r}")


_TAKES = {"camshaft": ("source",), "command": ("command", "key_env", "model"), "openai": ("url", "key_env", "model")}


def _engine(version: VersionSpec, path: str, problems: Problems) -> None:
    """Whether it has what its kind of engine needs, and nothing that another kind would."""
    config = version.config
    for key in ("source", "command", "url", "key_env", "model"):
        if getattr(config, key) and key not in _TAKES[config.engine]:
            kinds = " or ".join(kind for kind, keys in _TAKES.items() if key in keys)
            problems.add(path, f"{key} is for engine = {kinds}, and this one is {config.engine}")
    if version.env and config.engine != "command":
        problems.add(path, f"env is for engine = command, and this one is {config.engine}")
    if config.engine == "command" and not any("{port}" in word for word in config.command):
        problems.add(path, "command must hold {port}, which becomes the port that it has to listen on")
    if config.engine == "openai":
        _url(config.url, path, problems)
    if config.key_env and not _ENV.fullmatch(config.key_env):
        # Not quoted: somebody may have written the key itself.
        problems.add(path, "key_env takes the name of an environment variable that holds the key, never the key")


def _url(url: str, path: str, problems: Problems) -> None:
    if not url:
        problems.add(path, "url is missing: where the engine listens, such as https://api.example.com/v1")
        return
    try:
        parts = urlsplit(url)
        fine = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1) and not parts.query and not parts.fragment
    except ValueError:
        fine = False
    if not fine:
        problems.add(path, "url takes http:// or https://, a host, and a path such as /v1")
    elif parts.username is not None:
        problems.add(path, "url holds a user or password; put a key into the environment and name it in key_env")


def _tenants(spec: FleetSpec, problems: Problems) -> None:
    known = {name: m.name for m in spec.models for name in (m.name, *m.config.aliases)}
    owner: dict[bytes, str] = {}
    for tenant in spec.tenants:
        path = f"tenants.{tenant.name[:100]}"
        if not _PLAIN.fullmatch(tenant.name):
            problems.add(path, "is no name for a tenant; take up to 64 letters, digits and . _ -")
        if not tenant.config.keys and not tenant.config.keys_file:
            problems.add(path, "has no key, so that nobody could be it; camshaft ctl key makes one")
        for name in tenant.config.models:
            if name not in known:
                problems.add(path, f"{name[:100]!r} is no model of this file{suggest(name, known)}")
        for digest in tenant.digests:
            if (other := owner.setdefault(digest, tenant.name)) != tenant.name:
                problems.add(path, f"has a key that {other} has too")


# ----------------------------------------------------------------------------------------------------- this machine


def whole_paths(config: GatewayConfig, file: Path) -> GatewayConfig:
    """With the paths that it names seen from where the file is, and a folder for the state where it names none."""

    def whole(path: str) -> str:
        return str(file.absolute().parent / Path(path).expanduser()) if path else ""

    state_dir = whole(config.state_dir) or str(default_folder(file))
    return dataclasses.replace(config, state_dir=state_dir, tls_cert=whole(config.tls_cert), tls_key=whole(config.tls_key))


def places(spec: FleetSpec, env: Mapping[str, str], problems: Problems) -> None:
    """Notes files, commands and keys that are not there."""
    for version in spec.versions:
        path = _path(version.model, version.name)
        config = version.config
        if config.engine == "camshaft":
            _source(config.source, path, problems)
        if config.engine == "command" and config.command and shutil.which(config.command[0], path=env.get("PATH")) is None:
            problems.add(path, f"command: {config.command[0][:100]!r} is not on PATH")
        if _ENV.fullmatch(config.key_env) and not env.get(config.key_env):
            problems.add(path, f"key_env: the environment has no {config.key_env}")
    if spec.gateway.tls_cert and spec.gateway.tls_key:
        _tls(spec.gateway, problems)
    if trouble := trace.wrong_with(spec.gateway.otlp_endpoint):
        problems.add("gateway", f"otlp_endpoint {trouble}")


def _source(source: str, path: str, problems: Problems) -> None:
    known = [entry.name for entry in catalogue.entries()]
    if not source:
        problems.add(path, f"source is missing: a catalogue name ({', '.join(known)}), a file, or hf://owner/repo")
    elif not source.startswith(hub.SCHEME) and catalogue.find(source) is None and not Path(source).exists():
        problems.add(path, f"source: there is no {source[:300]}, and the catalogue has no such name{suggest(Path(source).name, known)}")


def whole_source(config: VersionConfig, folder: Path) -> VersionConfig:
    """With a source that is a path seen from `folder`, where the file is."""
    source = config.source
    if not source or source.startswith(hub.SCHEME) or catalogue.find(source) is not None:
        return config
    return dataclasses.replace(config, source=str(folder / Path(source).expanduser()))


def _tls(config: GatewayConfig, problems: Problems) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # The password keeps OpenSSL from asking for one on the terminal.
        context.load_cert_chain(config.tls_cert, config.tls_key, password=lambda: "")
    except ssl.SSLError as error:
        problems.add(
            "gateway", f"tls_cert and tls_key: {error.reason or error}; a PEM certificate and its key, without a password, are needed"
        )
    except OSError as error:
        missing = next((p for p in (config.tls_cert, config.tls_key) if not Path(p).is_file()), config.tls_cert)
        problems.add("gateway", f"cannot read {missing}: {error.strerror or error}")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
