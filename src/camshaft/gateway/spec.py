"""FleetSpec: what the file asks for. Frozen, whole and checked; `gateway.file` makes it from TOML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from camshaft.cluster.config import ReplicaConfig
from camshaft.cluster.foreign import ForeignConfig
from camshaft.config import EngineConfig, ServerConfig, opt
from camshaft.gateway.breaker import BreakerConfig
from camshaft.gateway.limit_config import LimitConfig
from camshaft.gateway.line_config import LineConfig
from camshaft.gateway.policy import RouteConfig
from camshaft.gateway.retry import RetryConfig

# Sections of a version, by the name of their table and of their field in VersionSpec. Each may stand in the file, in a model and in a
# version; the inner one counts.
LAYERED: dict[str, type[Any]] = {
    "settings": EngineConfig,
    "foreign": ForeignConfig,
    "life": ReplicaConfig,
    "line": LineConfig,
    "route": RouteConfig,
    "breaker": BreakerConfig,
    "retry": RetryConfig,
}

MAX_MODELS = 64
MAX_VERSIONS = 16  # of a model
MAX_REPLICAS = 256  # of all versions together
MAX_TENANTS = 10_000
MAX_WEIGHT = 1_000_000


@dataclass(frozen=True)
class GatewayConfig:
    """What the gateway has beside the HTTP edge of `serve`, whose settings stand in the same table."""

    admin_host: str = opt("127.0.0.1", "address of the admin API; it asks for a token wherever it listens")
    admin_port: int = opt(8001, "port of the admin API; 0 takes a free one", lo=0, hi=65_535)
    state_dir: str = opt(
        "", "folder for events, counters, accepted files and admin tokens; by default one of the user's own, named after the file"
    )
    tls_cert: str = opt("", "PEM file of the certificate and its chain; with it the public port speaks TLS")
    tls_key: str = opt("", "PEM file of the certificate's key")
    otlp_endpoint: str = opt(
        "", "collector that traces go to over OTLP/HTTP, such as http://127.0.0.1:4318/v1/traces; needs the extra camshaft[otel]"
    )
    cors_origins: tuple[str, ...] = opt(
        (), 'origins whose pages may call the API, such as "https://app.example.com"; none by default', hi=64
    )


@dataclass(frozen=True)
class ModelConfig:
    """A name that clients ask for."""

    aliases: tuple[str, ...] = opt((), "other names for it", hi=64)
    fallbacks: tuple[str, ...] = opt((), "models that answer when this one cannot or its context is too short, in this order", hi=8)
    default: bool = opt(False, "answers requests that name no model; without one the first of the file does")


@dataclass(frozen=True)
class VersionConfig:
    """One way to answer for a model: where it runs, how often, and its share of the traffic."""

    engine: str = opt(
        "camshaft",
        "camshaft: a process of ours; command: any server that speaks the OpenAI API, started here; openai: one that runs elsewhere",
        choices=("camshaft", "command", "openai"),
    )
    source: str = opt(
        "", "model of a camshaft engine: a catalogue name, a .gguf file or folder beside this file, or hf://owner/repo[:file]"
    )
    command: tuple[str, ...] = opt(
        (),
        "words of the command; {port} becomes the port that it must listen on, {host} its address, {name} the replica's name",
        hi=256,
    )
    url: str = opt("", "where an openai engine listens, such as https://api.example.com/v1")
    key_env: str = opt("", "name of the environment variable that holds the key for a command or openai engine")
    model: str = opt("", "name of the model there; ours by default")
    replicas: int = opt(1, "replicas to keep running", lo=0, hi=MAX_REPLICAS)
    weight: int = opt(100, "share of the model's traffic, relative to its other versions", lo=0, hi=MAX_WEIGHT)


@dataclass(frozen=True)
class TenantConfig:
    """Somebody with keys of their own."""

    keys: tuple[str, ...] = opt(
        (), "digests of its keys, as `camshaft ctl key` makes them (sha256:...); never keys themselves", hi=64, secret=True
    )
    keys_file: str = opt("", "file of keys or digests, one a line, read at start and at each reload")
    weight: float = opt(1.0, "share of a full queue, relative to other tenants", lo=0.001, hi=1_000_000)
    priority: int = opt(
        0, "class of its requests: 0 realtime, 1 batch, ...; a request may ask for a later one, never for a sooner", lo=0, hi=9
    )
    models: tuple[str, ...] = opt((), "models that it may ask for; all of them by default", hi=MAX_MODELS)
    tester: bool = opt(False, "may choose a version with the header x-camshaft-version")


@dataclass(frozen=True)
class VersionSpec:
    """A version. Its replicas are a pool of their own."""

    name: str
    model: str  # the model that it is a version of
    config: VersionConfig
    tenants: tuple[tuple[str, int], ...] = ()  # tenants with a weight of their own here
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)  # environment of a command; may hold secrets
    settings: EngineConfig = field(default_factory=EngineConfig)  # of a camshaft engine
    foreign: ForeignConfig = field(default_factory=ForeignConfig)  # of a command or openai engine
    life: ReplicaConfig = field(default_factory=ReplicaConfig)
    line: LineConfig = field(default_factory=LineConfig)
    route: RouteConfig = field(default_factory=RouteConfig)
    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    retry: RetryConfig = field(default_factory=RetryConfig)

    @property
    def id(self) -> str:
        """Unique in the fleet: MODEL/VERSION."""
        return f"{self.model}/{self.name}"


@dataclass(frozen=True)
class ModelSpec:
    name: str
    config: ModelConfig
    versions: tuple[VersionSpec, ...]  # one at least; in the file's order

    def weights(self, tenant: str) -> tuple[tuple[str, int], ...]:
        """(version, weight) in the file's order. A tenant that any version names is split by those weights alone."""
        own = tuple((v.name, dict(v.tenants).get(tenant, 0)) for v in self.versions)
        return (
            own
            if any(tenant == t for v in self.versions for t, _ in v.tenants)
            else tuple((v.name, v.config.weight) for v in self.versions)
        )


@dataclass(frozen=True)
class TenantSpec:
    name: str
    config: TenantConfig
    digests: tuple[bytes, ...] = field(default=(), repr=False)  # SHA-256 of each key, those of `keys_file` included
    limits: LimitConfig = field(default_factory=LimitConfig)

    def may_ask(self, model: ModelSpec) -> bool:
        """Its file names models by their own names or by their aliases."""
        named = self.config.models
        return not named or model.name in named or any(alias in named for alias in model.config.aliases)


EVERYBODY = TenantSpec("", TenantConfig(tester=True))  # who asks where no key is asked for


@dataclass(frozen=True)
class FleetSpec:
    """The whole file. Names are unique, references lead somewhere, files that it names were there when it was read."""

    models: tuple[ModelSpec, ...]  # one at least
    server: ServerConfig = field(default_factory=ServerConfig)  # host, port and bounds of the public port
    gateway: GatewayConfig = field(default_factory=GatewayConfig)  # `state_dir` and the TLS files are whole paths
    tenants: tuple[TenantSpec, ...] = ()  # none: everybody is welcome
    limits: LimitConfig = field(default_factory=LimitConfig)  # of everybody together where there are no tenants

    def model(self, name: str) -> ModelSpec | None:
        """By name or alias."""
        return next((m for m in self.models if name == m.name or name in m.config.aliases), None)

    @property
    def default_model(self) -> ModelSpec:
        return next((m for m in self.models if m.config.default), self.models[0])

    @property
    def versions(self) -> tuple[VersionSpec, ...]:
        return tuple(v for m in self.models for v in m.versions)
