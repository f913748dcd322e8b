"""A fleet's file in words: what it would run, and what taking another one in its place would change."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

from camshaft.gateway.check import is_loopback
from camshaft.gateway.spec import LAYERED, FleetSpec, ModelSpec, TenantConfig, TenantSpec, VersionSpec

_PER = {"requests_per_minute": "requests a minute", "tokens_per_minute": "tokens a minute", "concurrent_requests": "requests at once"}
# Settings of [gateway] that are read when the gateway starts.
AT_START = ("host", "port", "admin_host", "admin_port", "state_dir", "drain_s", "log_level", "log_format", "otlp_endpoint")


def describe(spec: FleetSpec) -> tuple[str, ...]:
    """A line for each thing that would happen."""
    server, gateway = spec.server, spec.gateway
    scheme = "https" if gateway.tls_cert else "http"
    public = f"{scheme}://{_host(server.host)}:{server.port or 'a free port'}/v1"
    lines = [f"serves {public}; admin API on {gateway.admin_host}:{gateway.admin_port or 'a free port'}"]
    lines.append(f"keeps its state in {gateway.state_dir}")
    for model in spec.models:
        lines += _model(model, spec)
    lines += [_tenant(tenant) for tenant in spec.tenants]
    if not spec.tenants:
        lines.append("asks for no key: there is no tenant in the file")
    return (*lines, *warnings(spec))


def warnings(spec: FleetSpec) -> tuple[str, ...]:
    """What works and may not be what was meant."""
    server, gateway = spec.server, spec.gateway
    found = []
    if not is_loopback(server.host) and not spec.tenants:
        found.append(f"warning: {server.host} can be reached from other machines and no key is asked for; describe tenants")
    if not is_loopback(server.host) and spec.tenants and not gateway.tls_cert:
        found.append(f"warning: keys travel to {server.host} in the clear; give tls_cert and tls_key, or put a proxy in front")
    if not is_loopback(gateway.admin_host):
        found.append(f"warning: the admin API can be reached from other machines on {gateway.admin_host}; only its tokens guard it")
    for version in spec.versions:
        config = version.config
        if config.key_env and config.url.startswith("http://") and not is_loopback(urlsplit(config.url).hostname or ""):
            found.append(f"warning: {version.id} sends its key to {config.url} in the clear")
    return tuple(found)


def diff(old: FleetSpec, new: FleetSpec) -> tuple[str, ...]:
    """What changes, a line each; none where both ask for the same."""
    return (*_models_diff(old, new), *_tenants_diff(old, new), *_gateway_diff(old, new))


# ----------------------------------------------------------------------------------------------------------- describing


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _model(model: ModelSpec, spec: FleetSpec) -> Iterator[str]:
    notes = [f"also called {', '.join(model.config.aliases)}"] if model.config.aliases else []
    notes += [f"when it is down, {', then '.join(model.config.fallbacks)}"] if model.config.fallbacks else []
    notes += ["answers requests that name no model"] if model is spec.default_model and len(spec.models) > 1 else []
    yield f"model {model.name}{': ' if notes else ''}{'; '.join(notes)}"
    total = sum(v.config.weight for v in model.versions)
    for version in model.versions:
        config = version.config
        share = f"{100 * config.weight / total:.3g} % of its traffic"
        own = ", ".join(f"{tenant} {weight}" for tenant, weight in version.tenants)
        yield f"  {version.name}: {_replicas(config.replicas)} of {runs(version)}; {share}{f'; weights of their own: {own}' if own else ''}"


def runs(version: VersionSpec) -> str:
    """What a replica of it is. Of a command its first word: the others may hold a secret."""
    config = version.config
    if config.engine == "camshaft":
        return f"our engine with {config.source}"
    if config.engine == "command":
        return f"the command {config.command[0]}" if config.command else "a command"
    return f"{config.model or version.model} at {config.url}"


def _replicas(n: int) -> str:
    return f"{n} replica{'' if n == 1 else 's'}"


def _tenant(tenant: TenantSpec) -> str:
    config = tenant.config
    models = f"may ask for {', '.join(config.models)}" if config.models else "may ask for every model"
    n = f"{len(tenant.digests)} key{'' if len(tenant.digests) == 1 else 's'}"
    tests = "; may choose versions" if config.tester else ""
    limits = "".join(f", {_PER[name]} {getattr(tenant.limits, name):,}" for name in _PER if getattr(tenant.limits, name))
    return f"tenant {tenant.name}: {n}, {models}, class {config.priority}, share {config.weight:g}{limits}{tests}"


# ------------------------------------------------------------------------------------------------------------ comparing


def _models_diff(old: FleetSpec, new: FleetSpec) -> Iterator[str]:
    before, after = {m.name: m for m in old.models}, {m.name: m for m in new.models}
    for name in before:
        if name not in after:
            yield f"model {name} ends: its requests finish, its replicas drain"
    for name, model in after.items():
        was = before.get(name)
        if was is None:
            yield f"model {name} begins"
            yield from (f"{v.id} starts {_replicas(v.config.replicas)} of {runs(v)}" for v in model.versions)
        else:
            yield from _fields(f"model {name}", was.config, model.config)
            yield from _versions_diff(was, model)
    if old.default_model.name != new.default_model.name and new.default_model.name in before:
        yield f"{new.default_model.name} answers requests that name no model, no longer {old.default_model.name}"


def _versions_diff(old: ModelSpec, new: ModelSpec) -> Iterator[str]:
    before, after = {v.name: v for v in old.versions}, {v.name: v for v in new.versions}
    for name, version in before.items():
        if name not in after:
            yield f"{version.id} ends: its requests finish, its replicas drain"
    for name, version in after.items():
        was = before.get(name)
        if was is None:
            yield f"{version.id} starts {_replicas(version.config.replicas)} of {runs(version)}, weight {version.config.weight}"
        else:
            yield from _version_diff(was, version)


def _version_diff(old: VersionSpec, new: VersionSpec) -> Iterator[str]:
    a, b = old.config, new.config
    changed = [*_fields("", dataclasses.replace(a, replicas=0, weight=0), dataclasses.replace(b, replicas=0, weight=0))]
    for section in LAYERED:
        changed += _fields(f"{section}.", getattr(old, section), getattr(new, section))
    if old.env != new.env:
        changed.append("env")
    if changed:
        yield f"{new.id} is replaced, the new replicas before the old ones drain: {', '.join(changed)}"
    if a.replicas != b.replicas:
        yield f"{new.id}: {a.replicas} -> {_replicas(b.replicas)}"
    if a.weight != b.weight:
        yield f"{new.id}: weight {a.weight} -> {b.weight}"
    if old.tenants != new.tenants:
        yield f"{new.id}: weights of tenants {_pairs(old.tenants)} -> {_pairs(new.tenants)}"


def _pairs(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(f"{name} {weight}" for name, weight in pairs) or "none"


def _tenants_diff(old: FleetSpec, new: FleetSpec) -> Iterator[str]:
    before, after = {t.name: t for t in old.tenants}, {t.name: t for t in new.tenants}
    yield from (f"tenant {name} goes: its keys are refused" for name in before if name not in after)
    for name, tenant in after.items():
        was = before.get(name)
        if was is None:
            yield f"{_tenant(tenant)} comes"
            continue
        yield from _fields(f"tenant {name}: ", _without_keys(was.config), _without_keys(tenant.config))
        yield from _fields(f"tenant {name}: limits.", was.limits, tenant.limits)
        n_more, n_fewer = len(set(tenant.digests) - set(was.digests)), len(set(was.digests) - set(tenant.digests))
        if n_more or n_fewer:
            yield f"tenant {name}: {n_more} new keys, {n_fewer} that are refused from now on"
    yield from _fields("limits of who has none of their own: ", old.limits, new.limits)
    if bool(before) != bool(after):
        yield "a key is asked for from now on" if after else "no key is asked for any more"


def restart_for(old: FleetSpec, new: FleetSpec) -> tuple[str, ...]:
    """Settings of [gateway] that differ and are read at its start alone. A certificate may change; whether there is one may not."""
    changed = [*_changed(old.server, new.server), *_changed(old.gateway, new.gateway)]
    tls = ["tls_cert"] if bool(old.gateway.tls_cert) != bool(new.gateway.tls_cert) else []
    return (*(name for name in changed if name in AT_START), *tls)


def _gateway_diff(old: FleetSpec, new: FleetSpec) -> Iterator[str]:
    later = restart_for(old, new)
    now = [name for name in (*_changed(old.server, new.server), *_changed(old.gateway, new.gateway)) if name not in later]
    if now:
        yield f"gateway: {', '.join(now)} changed"
    if later:
        yield f"gateway: {', '.join(later)} changed, which the next start of the gateway will see"


def _changed(old: Any, new: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(old) if getattr(old, f.name) != getattr(new, f.name)]


def _fields(where: str, old: Any, new: Any) -> Iterator[str]:
    start = where if where.endswith((".", " ")) or not where else f"{where} "
    for name in _changed(old, new):
        # A command's words may hold a secret.
        values = "" if name == "command" else f" {_value(getattr(old, name))} -> {_value(getattr(new, name))}"
        yield f"{start}{name}{values}"


def _without_keys(config: TenantConfig) -> TenantConfig:
    return dataclasses.replace(config, keys=(), keys_file="")


def _value(value: Any) -> str:
    shown = " ".join(value) if isinstance(value, tuple) else str(value)
    return shown[:100] or "none"
