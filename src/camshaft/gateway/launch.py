"""From a version's settings to what brings its replicas up and reads its text."""

from __future__ import annotations

from dataclasses import replace

from camshaft._native import usable_cores
from camshaft.cluster.command import Command, CommandLauncher
from camshaft.cluster.estimate import TokenEstimate
from camshaft.cluster.foreign import Access
from camshaft.cluster.outside import OutsideLauncher
from camshaft.cluster.process import ProcessLauncher
from camshaft.cluster.settings import WorkerSettings
from camshaft.config import EngineConfig
from camshaft.engine.words import words_of
from camshaft.formats.open import open_model
from camshaft.formats.source import resolve
from camshaft.gateway.spec import VersionSpec
from camshaft.gateway.version import Means
from camshaft.runners.sizing import model_len

LEAST_AGE_S = 60.0


def means_of(spec: VersionSpec) -> Means:
    """Blocks: a model of ours is fetched, if need be, and its words are read. Raises ConfigError, ModelError, DownloadError."""
    config = spec.config
    estimate = TokenEstimate()
    if config.engine == "camshaft":
        path = resolve(config.source)
        file = open_model(path)
        words = words_of(file)
        engine, life = shared(spec.settings, config.replicas), spec.life
        settings = WorkerSettings(model=str(path), public_name=spec.model, engine=engine, drain_s=life.drain_s, warm_s=life.warm_s)
        return Means(ProcessLauncher(settings, spec.life), words, estimate, model_len(file.spec, spec.settings))
    access = Access(config.model, config.key_env)
    if config.engine == "command":
        return Means(CommandLauncher(Command(config.command, spec.env), access, spec.foreign, spec.life, estimate), None, estimate)
    return Means(OutsideLauncher(config.url, access, spec.foreign, estimate), None, estimate)


def shared(settings: EngineConfig, n_replicas: int) -> EngineConfig:
    """An engine's settings behind a gateway. Several on one machine divide its cores, and none holds on to one that others want too.

    The gateway's line lets those who waited long go first. A batch request that aged into the best class inside the engine as well could
    not be preempted there by a realtime one.
    """
    settings = replace(settings, age_s=max(settings.age_s, LEAST_AGE_S))
    if n_replicas < 2:
        return settings
    threads = settings.threads or max(1, usable_cores() // n_replicas)
    return replace(settings, threads=threads, pin_threads=False)
