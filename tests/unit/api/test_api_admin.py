"""Keys, and the routes that operators, load balancers and tools ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from api_doubles import BOS, CHAT_PATH, HI, TEXT_PATH, Scripted, app_over, client_of, served
from camshaft.api.app import create_app
from camshaft.api.auth import Keys, read_keys
from camshaft.api.directory import FixedModels
from camshaft.config import ServerConfig
from camshaft.errors import ConfigError, Unauthorized
from camshaft.observe.metrics import Metrics

OPEN = ("/health", "/ready", "/version")
GUARDED = ("/v1/models", "/v1/models/tiny", "/metrics", "/openapi.json", "/docs")


@pytest.fixture
def keyed(tmp_path: Path) -> tuple[Scripted, ServerConfig]:
    path = tmp_path / "keys"
    path.write_text("# who may ask\nsk-ann ann\nsk-bob bob  # the second\n\nsk-solo\n")
    return Scripted(), ServerConfig(api_keys=str(path))


async def test_keys_guard_every_route_but_three(keyed: tuple[Scripted, ServerConfig]) -> None:
    async with client_of(app_over(*keyed)) as client:
        for path in OPEN:
            assert (await client.get(path)).status_code == 200
        for path in GUARDED:
            reply = await client.get(path)
            assert reply.status_code == 401, path
            assert reply.headers["www-authenticate"] == "Bearer"
            assert reply.json()["error"]["code"] == "invalid_api_key"
            assert (await client.get(path, headers={"authorization": "Bearer sk-ann"})).status_code == 200, path
        for path in (CHAT_PATH, TEXT_PATH, "/tokenize", "/detokenize"):
            assert (await client.post(path, json=HI)).status_code == 401, path
    assert keyed[0].requests == []


@pytest.mark.parametrize(
    "header", ["", "sk-ann", "Basic sk-ann", "Bearer", "Bearer ", "Bearer sk-an", "Bearer sk-ann2", "Bearer " + "x" * 600]
)
async def test_a_wrong_key_is_a_401(keyed: tuple[Scripted, ServerConfig], header: str) -> None:
    async with client_of(app_over(*keyed)) as client:
        assert (await client.post(CHAT_PATH, json=HI, headers={"authorization": header})).status_code == 401


async def test_a_key_gives_a_tenant_whose_kv_no_other_can_find(keyed: tuple[Scripted, ServerConfig]) -> None:
    upstream, config = keyed
    async with client_of(app_over(upstream, config)) as client:
        for key, salt in (("sk-ann", None), ("sk-bob", None), ("sk-ann", "s"), ("sk-bob", "s"), ("sk-ann", None), ("sk-solo", None)):
            fields: dict[str, Any] = {"cache_salt": salt}
            reply = await client.post(CHAT_PATH, json=HI | fields, headers={"authorization": f"bearer {key}"})
            assert reply.status_code == 200
    assert [r.tenant for r in upstream.requests[:3]] == ["ann", "bob", "ann"]
    assert upstream.requests[5].tenant.startswith("key-")
    salts = [r.cache_salt for r in upstream.requests]
    assert salts[0] == salts[4]
    assert len(set(salts)) == 5
    assert "" not in salts


async def test_without_keys_nobody_has_a_tenant_and_a_salt_still_counts() -> None:
    upstream = Scripted()
    async with client_of(app_over(upstream)) as client:
        await client.post(CHAT_PATH, json=HI)
        await client.post(CHAT_PATH, json=HI | {"cache_salt": "s"}, headers={"authorization": "Bearer anything"})
    assert [(r.tenant, bool(r.cache_salt)) for r in upstream.requests] == [("", False), ("", True)]


def test_a_tenant_cannot_pick_a_salt_that_reaches_another() -> None:
    from camshaft.api.plan import salt

    assert salt("a", "b") != salt("ab", "")
    assert salt("a", "") != salt("", "a")


@pytest.mark.parametrize(("text", "why"), [("", "no key"), ("# none\n", "no key"), ("a b c\n", "line 1"), ("k\nk x\n", "twice")])
def test_a_key_file_that_cannot_be_meant_is_refused_at_start(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_keys(str(path))


def test_a_key_file_that_is_not_there_is_refused_at_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--api-keys"):
        read_keys(str(tmp_path / "none"))


def test_keys_are_kept_as_digests_only() -> None:
    keys = Keys([("sk-secret", "ann")])
    assert "sk-secret" not in repr(vars(keys))
    assert keys.tenant(b"Bearer sk-secret") == "ann"
    with pytest.raises(Unauthorized):
        keys.tenant(None)


async def get(path: str, upstream: Scripted | None = None) -> httpx.Response:
    async with client_of(app_over(upstream or Scripted())) as client:
        return await client.get(path)


async def test_ready_asks_the_models_and_health_asks_nobody() -> None:
    assert (await get("/ready")).json() == {"status": "ready", "models": {"tiny": {"running": 0, "waiting": 0}}}
    reply = await get("/ready", Scripted(ready=False))
    assert reply.status_code == 503
    assert "still loading" in reply.json()["error"]["message"]
    assert (await get("/health", Scripted(ready=False))).status_code == 200


async def test_models_are_listed_and_found_by_name_slashes_included() -> None:
    app = create_app(FixedModels([served(Scripted(), name="org/m"), served(Scripted(), name="b")]), ServerConfig(), Metrics())
    async with client_of(app) as client:
        listed = (await client.get("/v1/models")).json()
        assert [m["id"] for m in listed["data"]] == ["org/m", "b"]
        assert listed["data"][0] == {
            "id": "org/m",
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": "camshaft",
            "max_model_len": 4096,
        }
        for path in ("/v1/models/org/m", "/v1/models/org%2Fm"):
            assert (await client.get(path)).json()["id"] == "org/m"
        assert (await client.get("/v1/models/c")).status_code == 404


async def test_requests_go_to_the_model_that_they_name() -> None:
    first, second = Scripted(), Scripted()
    app = create_app(FixedModels([served(first, name="a"), served(second, name="b")]), ServerConfig(), Metrics())
    async with client_of(app) as client:
        answer = (await client.post(CHAT_PATH, json=HI | {"model": "b"})).json()
    assert (len(first.requests), len(second.requests), answer["model"]) == (0, 1, "b")


def test_two_models_of_one_name_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="name"):
        create_app(FixedModels([served(Scripted()), served(Scripted())]), ServerConfig(), Metrics())


async def test_tokenize_and_detokenize_undo_each_other() -> None:
    async with client_of(app_over(Scripted())) as client:
        reply = (await client.post("/tokenize", json={"prompt": "hé", "return_token_strs": True})).json()
        assert reply == {
            "count": 4,
            "max_model_len": 4096,
            "tokens": [BOS, 104, 195, 169],
            "token_strs": ["<s>", "h", "bytes:\\xc3", "bytes:\\xa9"],
        }
        bare = (await client.post("/tokenize", json={"prompt": "hé", "add_special_tokens": False})).json()
        assert bare["tokens"] == [104, 195, 169]
        assert (await client.post("/detokenize", json={"tokens": bare["tokens"]})).json() == {"prompt": "hé"}
        chat = (await client.post("/tokenize", json=HI)).json()["tokens"]
        assert bytes(chat[1:]) == b"user: hi\nassistant:"
        ended = (await client.post("/tokenize", json=HI | {"add_generation_prompt": False})).json()["tokens"]
        assert bytes(ended[1:]) == b"user: hi\n"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", HI | {"prompt": "x"}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"text": "x"}, "text"),
        ("/detokenize", {"tokens": [258]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
        ("/detokenize", {}, "tokens"),
    ],
)
async def test_bad_token_calls_are_400s_that_name_the_field(path: str, body: dict[str, Any], param: str) -> None:
    async with client_of(app_over(Scripted())) as client:
        reply = await client.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"prompt": "x" * 524_289}, "prompt"), ({"messages": [HI["messages"][0] | {"content": "x" * 524_289}]}, "messages")],
)
async def test_a_text_that_would_hold_a_thread_for_long_is_refused(fields: dict[str, Any], param: str) -> None:
    async with client_of(app_over(Scripted())) as client:
        reply = await client.post("/tokenize", json=fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert "524,288" in reply.json()["error"]["message"]


async def test_the_version_is_shown() -> None:
    assert (await get("/version")).json()["version"]


async def test_the_openapi_description_is_valid_and_describes_what_is_served() -> None:
    described = (await get("/openapi.json")).json()
    app = app_over(Scripted())
    assert set(described["paths"]) == set(app.paths) - {"/openapi.json", "/docs"}
    schemas = described["components"]["schemas"]
    for schema in schemas.values():
        Draft202012Validator.check_schema(schema)
    request = schemas["ChatRequest"]
    assert request["properties"]["temperature"]["anyOf"][0]["maximum"] == 2
    assert request["required"] == ["messages"]
    validator = Draft202012Validator({"$ref": "#/components/schemas/ChatRequest"} | described)
    assert validator.is_valid(HI | {"temperature": 1})
    assert not validator.is_valid(HI | {"temperature": 3})
    assert not validator.is_valid({"messages": [{"role": "wizard"}]})


async def test_the_docs_page_needs_nothing_from_elsewhere() -> None:
    page = await get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "/v1/chat/completions" in page.text
    assert "top_logprobs" in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text
    assert "<script" not in page.text
