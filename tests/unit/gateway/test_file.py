"""The fleet's file: what it means, and that everything wrong with it is said at once."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from camshaft.errors import ConfigError
from camshaft.gateway import file
from camshaft.gateway.spec import FleetSpec
from camshaft.gateway.table import MAX_PROBLEMS, FileRejected

ENV = {"PATH": "/usr/bin:/bin", "OTHER_KEY": "secret"}
DIGEST = hashlib.sha256(b"a").hexdigest()
ONE = '[models.m.versions.v1]\nsource = "smollm2-135m"\n'


def parse(text: str, folder: Path = Path("/nowhere")) -> FleetSpec:
    return file.parse(text, folder / "camshaft.toml", ENV)


def problems(text: str, folder: Path = Path("/nowhere")) -> tuple[str, ...]:
    with pytest.raises(FileRejected) as caught:
        parse(text, folder)
    return caught.value.problems


WHOLE = f"""
[gateway]
port = 9000
admin_port = 9001
state_dir = "state"
cors_origins = ["https://app.example.com"]

[settings]
threads = 1

[line]
max_requests = 100

[route]
policy = "least_tokens"

[models.small]
aliases = ["gpt-4o-mini"]
fallbacks = ["other"]

[models.small.line]
max_requests = 10

[models.small.settings]
max_num_seqs = 8

[models.small.versions.v1]
source = "smollm2-135m"
replicas = 2
weight = 90

[models.small.versions.v2]
source = "models/new.gguf"
weight = 10
tenants = {{ acme = 100 }}
settings = {{ max_num_seqs = 4 }}

[models.other]
default = true

[models.other.versions.far]
engine = "openai"
url = "https://api.example.com/v1"
key_env = "OTHER_KEY"
model = "their-name"

[models.other.versions.near]
engine = "command"
command = "sh -c 'serve --port {{port}}'"
env = {{ THREADS = "2" }}

[tenants.acme]
keys = ["sha256:{DIGEST}"]
keys_file = "acme.keys"
weight = 2
priority = 1
models = ["gpt-4o-mini"]
tester = true
"""


def test_a_whole_file(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "new.gguf").touch()
    (tmp_path / "acme.keys").write_text(f"b  # the new one\n\nsha256:{hashlib.sha256(b'c').hexdigest()}\n")
    spec = parse(WHOLE, tmp_path)
    assert (spec.server.port, spec.gateway.admin_port, spec.gateway.state_dir) == (9000, 9001, str(tmp_path / "state"))
    assert spec.gateway.cors_origins == ("https://app.example.com",)
    small, other = spec.models
    assert spec.model("gpt-4o-mini") is small
    assert spec.model("nothing") is None
    assert spec.default_model is other
    assert [v.id for v in spec.versions] == ["small/v1", "small/v2", "other/far", "other/near"]
    v1, v2 = small.versions
    assert (v1.config.source, v1.config.replicas, v2.config.source) == ("smollm2-135m", 2, str(tmp_path / "models" / "new.gguf"))
    assert [(v.settings.threads, v.settings.max_num_seqs) for v in spec.versions] == [(1, 8), (1, 4), (1, 32), (1, 32)]
    assert small.weights("acme") == (("v1", 0), ("v2", 100))
    assert small.weights("else") == (("v1", 90), ("v2", 10))
    far, near = other.versions
    assert (far.config.url, far.config.key_env, far.config.model) == ("https://api.example.com/v1", "OTHER_KEY", "their-name")
    assert near.config.command == ("sh", "-c", "serve --port {port}")
    assert near.env == (("THREADS", "2"),)
    assert [(v.line.max_requests, v.route.policy) for v in (v1, far)] == [(10, "least_tokens"), (100, "least_tokens")]
    (acme,) = spec.tenants
    assert acme.digests == tuple(hashlib.sha256(key).digest() for key in (b"a", b"b", b"c"))
    assert (acme.config.weight, acme.config.priority, acme.config.tester) == (2.0, 1, True)


def test_everything_wrong_is_said_at_once() -> None:
    text = """
typo = 1
[gateway]
prot = 80
port = 99999
api_keys = "x"
[models.m]
aliases = "not a list"
[models.m.versions.v1]
sorce = "smollm2-135m"
replicas = 1.5
settings = { max_num_seq = 4, threads = "two" }
"""
    assert problems(text) == (
        "[gateway] api_keys has no place here; give each tenant its keys: [tenants.NAME]",
        "[gateway] port must lie between 0 and 65535, not 99999",
        "[gateway] unknown setting 'prot'; did you mean 'port'?",
        "[models.m] aliases takes a list of texts, not 'not a list'",
        "[models.m.versions.v1.settings] threads takes a whole number, not 'two'",
        "[models.m.versions.v1.settings] unknown setting 'max_num_seq'; did you mean 'max_num_seqs'?",
        "[models.m.versions.v1] replicas takes a whole number, not 1.5",
        "[models.m.versions.v1] unknown setting 'sorce'; did you mean 'source'?",
        "unknown setting 'typo'",
        "[models.m.versions.v1] source is missing: a catalogue name (smollm2-135m, gemma3-270m), a file, or hf://owner/repo",
    )


V = "[models.m.versions.v1]\n"
FAR = 'engine = "openai"\n'
RUN = 'engine = "command"\n'
WRONG = {
    "": "[models] is empty",
    "[models.m]\n": "[models.m] has no version; describe one: [models.m.versions.v1]",
    "models = 3": "models is a table: write [models]",
    "a = ": "is not TOML: Invalid value (at",
    ONE + "[models.m.settings]\nno_such = 1": "[models.m.settings] unknown setting 'no_such'",
    ONE + "[settings]\nthread = 1": "[settings] unknown setting 'thread'; did you mean 'threads'?",
    '[models."a b".versions.v1]\nsource = "smollm2-135m"': '[models."a b"] is no name for a model',
    '[models.m.versions."v 1"]\nsource = "smollm2-135m"': "is no name for a version",
    ONE + '[models.m]\nfallbacks = ["n"]': "[models.m] the fallback 'n' is no model of this file",
    ONE + '[models.m]\nfallbacks = ["m"]': "[models.m] its fallbacks lead back to it: m -> m",
    ONE + '[models.m]\naliases = ["m"]': "[models.m] the alias 'm' is the name of 'm' already",
    V + 'source = "smollm2-135m"\nweight = 0': "[models.m] all its versions have weight 0",
    V + 'source = "smollm2-135m"\nreplicas = 0': "has weight 100 and no replica",
    V + 'source = "smollm2-135m"\nreplicas = -1': "replicas must lie between 0 and 256, not -1",
    V + 'source = "smollm2-135m"\nreplicas = true': "replicas takes a whole number, not True",
    V + 'source = "smollm2-135m"\nweight = nan': "weight takes a whole number, not nan",
    V + 'source = "smolm2-135m"': "there is no /nowhere/smolm2-135m, and the catalogue has no such name; did you mean 'smollm2-135m'?",
    V + 'source = "smollm2-135m"\ntenants = { x = 1 }': "[models.m.versions.v1.tenants] 'x' is no tenant of this file",
    V + 'source = "smollm2-135m"\nurl = "http://a/v1"': "url is for engine = openai, and this one is camshaft",
    V + 'source = "smollm2-135m"\nenv = { A = "b" }': "env is for engine = command",
    V + 'source = "smollm2-135m"\nenv = { A = 1 }': "[models.m.versions.v1.env] A takes text",
    V + 'engine = "vllm"': "engine is one of camshaft, command, openai, not 'vllm'",
    V + RUN: "command must hold {port}",
    V + RUN + 'command = ["sh", "--port", "8000"]': "command must hold {port}",
    ONE + "[line]\nage = 1": "[line] unknown setting 'age'; did you mean 'age_s'?",
    ONE + '[models.m.versions.v1.life]\nstart_s = "soon"': "[models.m.versions.v1.life] start_s takes a number, not 'soon'",
    V + RUN + 'command = "sh \'open"': "command: no closing quotation",
    V + RUN + 'command = "no-such-server --port {port}"': "command: 'no-such-server' is not on PATH",
    V + FAR: "url is missing",
    V + FAR + 'url = "example.com"': "url takes http:// or https://",
    V + FAR + 'url = "http://me:pass@example.com/v1"': "url holds a user or password",
    V + FAR + 'url = "http://a/v1"\nkey_env = "sk-real-key"': "key_env takes the name of an environment variable",
    V + FAR + 'url = "http://a/v1"\nkey_env = "NOT_SET"': "key_env: the environment has no NOT_SET",
    ONE + "[gateway]\nport = 9000\nadmin_port = 9000": "port and admin_port are both 9000",
    ONE + '[gateway]\ntls_cert = "a.pem"': "tls_key is missing",
    ONE + '[gateway]\ntls_cert = "a.pem"\ntls_key = "b.pem"': "cannot read /nowhere/a.pem: No such file or directory",
    ONE + '[gateway]\ncors_origins = ["*"]': "cors_origins takes scheme, host and port",
    ONE + "[tenants.t]\n": "[tenants.t] has no key, so that nobody could be it",
    ONE + '[tenants.t]\nkeys_file = "no.keys"': "[tenants.t] keys_file: cannot read /nowhere/no.keys",
    ONE + f'[tenants.t]\nkeys = ["sha256:{DIGEST}"]\nmodels = ["x"]': "[tenants.t] 'x' is no model of this file",
    ONE + f'[tenants.t]\nkeys = ["sha256:{DIGEST}"]\n[tenants.u]\nkeys = ["sha256:{DIGEST}"]': "[tenants.u] has a key that t has too",
    ONE + f'[tenants.t]\nkeys = ["sha256:{DIGEST}"]\nweight = inf': "weight must lie between 0.001 and 1e+06, not inf",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: WRONG[text][:40])
def test_what_is_wrong_is_named(text: str) -> None:
    assert any(WRONG[text] in problem for problem in problems(text)), problems(text)


def test_two_defaults_and_two_owners_of_a_name() -> None:
    text = "".join(f'[models.{m}]\ndefault = true\naliases = ["same"]\nversions.v.source = "smollm2-135m"\n' for m in "ab")
    assert problems(text) == (
        "[models.b] the alias 'same' is the name of 'a' already",
        "[models.b] is a default model, and 'a' is too; there can be one",
    )


def test_a_circle_of_fallbacks_is_told_once() -> None:
    ways = {"a": "b", "b": "c", "c": "a"}
    text = "".join(f'[models.{m}]\nfallbacks = ["{f}"]\nversions.v.source = "smollm2-135m"\n' for m, f in ways.items())
    assert problems(text) == ("[models.a] its fallbacks lead back to it: a -> b -> c -> a",)


def test_no_error_repeats_a_key() -> None:
    for value in ('"sk-very-secret"', '["sk-very-secret"]'):
        text = "\n".join(problems(f"{ONE}[tenants.t]\nkeys = {value}"))
        assert "sk-very-secret" not in text
        assert "camshaft ctl key" in text or "not what stands there" in text


def test_problems_are_bounded() -> None:
    found = problems("".join(f"no_{i} = 1\n" for i in range(MAX_PROBLEMS + 100)))
    assert len(found) == MAX_PROBLEMS + 1
    assert found[-1] == "and 101 more"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        file.read(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        file.read(tmp_path / "binary.toml")
    with pytest.raises(FileRejected, match="not TOML"):
        parse("a = " + "[" * 100_000)


def test_a_collector_that_cannot_be_is_said_with_the_rest_of_the_file(tmp_path: Path) -> None:
    text = '[gateway]\notlp_endpoint = "collector:4317"\n[models.a.versions.v1]\nengine = "openai"\nurl = "http://127.0.0.1:1/v1"\n'
    with pytest.raises(FileRejected, match=r"otlp_endpoint takes the whole address.*4318"):
        parse(text, tmp_path / "f.toml")
