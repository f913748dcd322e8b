"""A fleet as a table: a row for each replica, under a row for each version."""

from __future__ import annotations

from camshaft.gateway.control import FleetStatus, ReplicaStatus, TenantStatus, VersionStatus
from camshaft.gateway.events import Happening

HEADS = ("replica", "state", "for", "streams", "tokens due", "tok/s", "KV", "note")
TENANT_HEADS = ("tenant", "running", "queued", "requests left", "tokens left")


def rows(status: FleetStatus) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for model in status.models:
        total = sum(v.weight for v in model.versions) or 1
        for version in model.versions:
            found.append(_version(model.name, version, total))
            found += [_replica(replica) for replica in version.replicas]
    return found


def tenant_rows(status: FleetStatus) -> list[tuple[str, ...]]:
    return [_tenant(tenant) for tenant in status.tenants]


def notes(status: FleetStatus) -> list[str]:
    """What an operator should know beside the table."""
    found = []
    if status.state:
        found.append(f"the state on disk is not written: {status.state}")
    if status.restart_for:
        found.append(f"settings that wait for a restart of the gateway: {', '.join(status.restart_for)}")
    return found


def told(happening: Happening) -> str:
    """What happened, in a line."""
    pairs = [f"{key}={value:.6g}" if isinstance(value, float) else f"{key}={value}" for key, value in happening.evidence.items()]
    evidence = f" ({' '.join(pairs)})" if pairs else ""
    return f"{happening.kind} {happening.subject}: {happening.text}{evidence}"


def _version(model: str, version: VersionStatus, total: int) -> tuple[str, ...]:
    ready = sum(r.state == "ready" for r in version.replicas)
    queue = f"{version.queued} waiting ({version.queued_tokens:,} tokens, {version.oldest_s:.1f} s)" if version.queued else ""
    breaker = f"breaker {version.breaker}" if version.breaker != "closed" else ""
    note = "; ".join(part for part in (f"{100 * version.weight / total:.3g} % of {model}", *_by_hand(version), queue, breaker) if part)
    return (f"{model}/{version.name}", f"{ready}/{version.wanted} ready", "", "", "", "", "", note)


def _by_hand(version: VersionStatus) -> list[str]:
    """What somebody set, where the file says something else. A replica that was drained says so itself."""
    pairs = {"weight": (version.weight, version.weight_in_file), "replicas": (version.wanted, version.wanted_in_file)}
    return [f"{what} {now} by hand, {filed} in the file" for what, (now, filed) in pairs.items() if now != filed >= 0]


def _replica(replica: ReplicaStatus) -> tuple[str, ...]:
    breaker = f"breaker {replica.breaker}" if replica.breaker != "closed" else ""
    restarts = f"restarted {replica.n_restarts} times" if replica.n_restarts else ""
    return (
        f"  {replica.name.rpartition('/')[2]}",
        replica.state,
        _age(replica.since_s),
        str(replica.running),
        f"{replica.tokens_in_flight:,}",
        _known(replica.tokens_per_s, "{:,.0f}"),
        _known(replica.kv_usage, "{:.0%}"),
        "; ".join(part for part in (replica.detail, breaker, restarts) if part),
    )


def _tenant(tenant: TenantStatus) -> tuple[str, ...]:
    left = (_known(tenant.requests_left, "{:,.0f}"), _known(tenant.tokens_left, "{:,.0f}"))
    return (tenant.name or "everybody", str(tenant.running), str(tenant.queued), *left)


def _known(value: float, form: str) -> str:
    return form.format(value) if value >= 0 else "-"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"
