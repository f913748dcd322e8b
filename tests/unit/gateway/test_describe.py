"""What a file means in words, and what a reload would change."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from camshaft.gateway import file
from camshaft.gateway.describe import describe, diff
from camshaft.gateway.spec import FleetSpec

KEYS = [hashlib.sha256(bytes([i])).hexdigest() for i in range(3)]
BASE = f"""
[gateway]
state_dir = "/tmp/state"

[models.small]
aliases = ["s"]
fallbacks = ["far"]

[models.small.versions.v1]
source = "smollm2-135m"
replicas = 2
weight = 90

[models.small.versions.v2]
source = "smollm2-135m"
weight = 10
tenants = {{ ann = 100 }}

[models.far.versions.only]
engine = "openai"
url = "http://127.0.0.1:9/v1"

[tenants.ann]
keys = ["sha256:{KEYS[0]}"]
tester = true

[tenants.bob]
keys = ["sha256:{KEYS[1]}"]
models = ["small"]
priority = 1
limits.tokens_per_minute = 60000
"""


def spec(text: str) -> FleetSpec:
    return file.parse(text, Path("/nowhere/camshaft.toml"), {"KEY": "k", "PATH": "/bin:/usr/bin"})


def test_a_file_in_words() -> None:
    assert describe(spec(BASE)) == (
        "serves http://127.0.0.1:8000/v1; admin API on 127.0.0.1:8001",
        "keeps its state in /tmp/state",
        "model small: also called s; when it is down, far; answers requests that name no model",
        "  v1: 2 replicas of our engine with smollm2-135m; 90 % of its traffic",
        "  v2: 1 replica of our engine with smollm2-135m; 10 % of its traffic; weights of their own: ann 100",
        "model far",
        "  only: 1 replica of far at http://127.0.0.1:9/v1; 100 % of its traffic",
        "tenant ann: 1 key, may ask for every model, class 0, share 1; may choose versions",
        "tenant bob: 1 key, may ask for small, class 1, share 1, tokens a minute 60,000",
    )


FIRST = "the new replicas before the old ones drain"
CHANGES = {
    ("replicas = 2", "replicas = 3"): "small/v1: 2 -> 3 replicas",
    ("weight = 90", "weight = 50"): "small/v1: weight 90 -> 50",
    ("ann = 100", "ann = 1, bob = 2"): "small/v2: weights of tenants ann 100 -> ann 1, bob 2",
    ("[models.far", "[settings]\nthreads = 1\n[models.far"): f"small/v1 is replaced, {FIRST}: settings.threads 0 -> 1",
    ("http://127.0.0.1:9/v1", "http://127.0.0.1:8/v1"): f"far/only is replaced, {FIRST}: url http://127.0.0.1:9/v1 -> http://127.0.0.1:8/v1",
    ("[models.small.versions.v2]", "[models.small.versions.v3]"): "small/v2 ends: its requests finish, its replicas drain",
    ("[models.far.", '[models.new.versions.v1]\nsource = "smollm2-135m"\n[models.far.'): "model new begins",
    ('aliases = ["s"]', 'aliases = ["t"]'): "model small aliases s -> t",
    ('fallbacks = ["far"]', ""): "model small fallbacks far -> none",
    ("[models.far.", "[models.far]\ndefault = true\n[models.far."): "far answers requests that name no model, no longer small",
    (KEYS[0], KEYS[2]): "tenant ann: 1 new keys, 1 that are refused from now on",
    ("priority = 1", "priority = 2"): "tenant bob: priority 1 -> 2",
    ("= 60000", "= 5"): "tenant bob: limits.tokens_per_minute 60000 -> 5",
    ("[models.far", "[limits]\nconcurrent_requests = 9\n[models.far"): "limits of who has none of their own: concurrent_requests 0 -> 9",
    ("[tenants.bob]", "[tenants.eve]"): "tenant bob goes: its keys are refused",
    ("[gateway]", "[gateway]\nport = 9000\nmax_n = 4"): "gateway: port changed, which the next start of the gateway will see",
    ("[gateway]", '[gateway]\ncors_origins = ["https://a.b"]'): "gateway: cors_origins changed",
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1][:30])
def test_what_a_reload_would_change(change: tuple[str, str]) -> None:
    before, after = spec(BASE), spec(BASE.replace(*change))
    lines = diff(before, after)
    assert any(line.startswith(CHANGES[change]) for line in lines), lines
    assert diff(after, after) == ()


def test_no_digest_of_a_key_is_shown() -> None:
    everything = [*describe(spec(BASE)), *diff(spec(BASE), spec(BASE.replace(KEYS[0], KEYS[2])))]
    assert not any(key in line for key in KEYS for line in everything)


def test_what_a_command_says_beyond_its_name_is_not_shown() -> None:
    run = """[models.m.versions.v]
engine = "command"
command = "sh --api-key sk-secret --port {port}"
"""
    one, two = spec(run), spec(run.replace("sk-secret", "sk-other"))
    assert diff(one, two) == (f"m/v is replaced, {FIRST}: command",)
    assert not any("sk-" in line for line in (*describe(one), *diff(one, two)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[gateway]\nhost = "0.0.0.0"\n[models.m.versions.v]\nsource = "smollm2-135m"', "no key is asked for"),
        (BASE.replace("[gateway]", '[gateway]\nhost = "0.0.0.0"'), "keys travel to 0.0.0.0 in the clear"),
        (BASE.replace("[gateway]", '[gateway]\nadmin_host = "0.0.0.0"'), "the admin API can be reached from other machines"),
        (BASE.replace("http://127.0.0.1:9/v1", 'http://api.example.com/v1"\nkey_env = "KEY'), "sends its key to http://api.example.com/v1"),
    ],
)
def test_what_may_not_be_meant_is_said(text: str, said: str) -> None:
    assert not any(line.startswith("warning") for line in describe(spec(BASE)))
    assert any(line.startswith("warning") and said in line for line in describe(spec(text)))
