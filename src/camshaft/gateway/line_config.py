"""LineConfig: the settings of a line."""

from __future__ import annotations

from dataclasses import dataclass

from camshaft.config import opt


@dataclass(frozen=True)
class LineConfig:
    """The queue in front of a version's replicas."""

    age_s: float = opt(10.0, "seconds without service that are worth one step of priority to a waiting class", lo=0.001, hi=86_400)
    least_share: float = opt(0.05, "share of the work that a waiting class gets behind better ones", lo=0, hi=0.5)
    patience_s: float = opt(5.0, "seconds for which others may pass one that fits nowhere, before they wait for it as long", lo=0, hi=3600)
    max_requests: int = opt(4096, "requests that may wait", lo=1, hi=1_000_000)
    max_tokens: int = opt(4_000_000, "prompt tokens that may wait", lo=1, hi=1_000_000_000)
    tenant_share: float = opt(0.5, "share of either bound that one tenant may fill", lo=0.001, hi=1)
    max_wait_s: float = opt(120.0, "longest wait in line before a clear refusal", lo=0.001, hi=86_400)
    max_tenants: int = opt(10_000, "idle tenants whose share is remembered", lo=1, hi=1_000_000)
    memory_s: float = opt(30.0, "how far back the measured speed of the line looks", lo=0.1, hi=3600)
    grace_s: float = opt(10.0, "how long the place of one who was told to come back is kept", lo=0, hi=3600)
    max_promises: int = opt(10_000, "places kept at once for those who were told to come back", lo=0, hi=1_000_000)
    refuse_unmeetable: bool = opt(True, "refuse at once what cannot meet its deadline at the measured speed")
