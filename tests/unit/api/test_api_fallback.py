"""Another model answers where the one that was asked for is down; and versions stay with whom they were given to."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest

from api_doubles import CHAT_PATH, TEXT_PATH
from camshaft.errors import ConfigError, Unavailable, UpstreamRefused
from camshaft.gateway.file import parse
from camshaft.gateway.spec import VersionSpec
from camshaft.types import Event, Failed, Request
from edge_rig import Rig, digest, edge, model
from gateway_rig import Mortal

ANN, BOB, TED = "key-of-ann", "key-of-bob", "key-of-ted"
TENANTS = f"""
[tenants.ann]
keys = ["{digest(ANN)}"]
[tenants.bob]
keys = ["{digest(BOB)}"]
models = ["a", "c"]
[tenants.ted]
keys = ["{digest(TED)}"]
tester = true
"""
THREE = model("a", 'aliases = ["alias"]\nfallbacks = ["b", "c"]') + model("b") + model("c") + TENANTS
ASK = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4, "temperature": 0, "seed": 1, "ignore_eos": True}


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with edge(THREE, tmp_path, monkeypatch) as made:
        yield made


async def ask(rig: Rig, key: str = ANN, model: str = "a", headers: dict[str, str] | None = None, **more: object) -> httpx.Response:
    async with rig.client(key) as client:
        return await client.post(CHAT_PATH, json={**ASK, "model": model, **more}, headers=headers)


async def test_a_model_that_is_up_answers_itself(rig: Rig) -> None:
    reply = await ask(rig)
    assert (reply.status_code, reply.json()["model"]) == (200, "a")
    assert reply.headers["x-camshaft-version"] == "v1"
    assert reply.headers["x-camshaft-replica"].startswith("a/v1")
    assert "x-camshaft-fallback" not in reply.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["a", "alias"])
async def test_its_fallback_answers_where_it_is_down_and_the_head_and_the_log_say_so(
    rig: Rig, name: str, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    await rig.down("a")
    with caplog.at_level(logging.INFO, "camshaft.access"):
        reply = await ask(rig, model=name, stream=stream)
    assert reply.status_code == 200
    assert reply.headers["x-camshaft-fallback"] == "a -> b"
    assert reply.headers["x-camshaft-replica"].startswith("b/v1")
    said = [record.getMessage() for record in caplog.records if record.name == "camshaft.access"]
    assert len(said) == 1
    assert " passed=a " in said[0]
    assert " model=b " in said[0]


async def test_the_next_one_answers_where_the_first_fallback_is_down_too(rig: Rig) -> None:
    await rig.down("a")
    await rig.down("b")
    reply = await ask(rig)
    assert reply.headers["x-camshaft-fallback"] == "a,b -> c"


async def test_a_fallback_is_not_one_for_models_whose_file_does_not_say_so(rig: Rig) -> None:
    await rig.down("b")
    reply = await ask(rig, model="b")
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")


async def test_where_all_are_down_the_last_error_comes_with_its_retry_after(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a", "b", "c"):
        await rig.down(name)
    with caplog.at_level(logging.INFO, "camshaft.access"):
        reply = await ask(rig)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
    assert int(reply.headers["retry-after"]) >= 1
    assert 'passed="a,b,c"' in caplog.text or "passed=a,b,c" in caplog.text


async def test_nobody_is_handed_to_a_model_that_it_may_not_ask_for(rig: Rig) -> None:
    assert (await ask(rig, BOB, "b")).status_code == 403
    await rig.down("a")
    reply = await ask(rig, BOB)
    assert (reply.status_code, reply.headers["x-camshaft-fallback"]) == (200, "a -> c")
    await rig.down("c")
    reply = await ask(rig, BOB)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")


async def test_one_rule_says_what_a_tenant_may_ask_for_and_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file may name a model by its alias there; the list, the answer and the fallback agree."""
    text = model("a", 'fallbacks = ["b", "c"]') + model("b") + model("c", 'aliases = ["see"]') + TENANTS.replace('"a", "c"', '"a", "see"')
    async with edge(text, tmp_path, monkeypatch) as rig:
        async with rig.client(BOB) as client:
            assert [card["id"] for card in (await client.get("/v1/models")).json()["data"]] == ["a", "c"]
        for name in ("c", "see"):
            assert (await ask(rig, BOB, name)).status_code == 200
        reply = await ask(rig, BOB, "b")
        assert reply.status_code == 403
        assert "it may ask for a, c" in reply.json()["error"]["message"]
        await rig.down("a")
        assert (await ask(rig, BOB)).headers["x-camshaft-fallback"] == "a -> c"


async def test_a_request_that_only_the_fallback_finds_wrong_keeps_the_first_models_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To change the request would not be the answer: the model that was asked for takes it, once it is back."""
    async with edge(THREE, tmp_path, monkeypatch) as rig:
        rig.version("b").words.dialogue = None  # it has no template
        rig.version("c").words.dialogue = None
        await rig.down("a")
        reply = await ask(rig)
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "unavailable")
        async with rig.client(ANN) as client:
            said = await client.post(TEXT_PATH, json={"model": "a", "prompt": "hi", "max_tokens": 2})
        assert said.headers["x-camshaft-fallback"] == "a -> b"


async def test_a_server_that_refuses_our_key_is_passed_and_the_operators_are_told_which_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(Mortal):
        async def stream(self, request: Request) -> AsyncIterator[Event]:
            self.asked.append(request)
            yield Failed(UpstreamRefused("the server behind this model refuses this gateway's key (401)").info())

    refusing: list[Refusing] = []

    def make(spec: VersionSpec) -> Mortal:
        if spec.model != "a":
            return Mortal()
        refusing.append(Refusing())
        return refusing[-1]

    monkeypatch.setenv("FAR_KEY", "sk-far-0001")
    text = model("a", 'fallbacks = ["b"]') + 'key_env = "FAR_KEY"\nreplicas = 2\n' + model("b")
    async with edge(text, tmp_path, monkeypatch, make) as rig:
        for _ in range(3):
            assert (await ask(rig, "")).headers["x-camshaft-fallback"] == "a -> b"
        # Each was sent there once: the other replica has the same key.
        assert sum(len(backend.asked) for backend in refusing) == 3
        events, _ = await rig.gateway.admin.events(0.0, 1e12, 1000)
        (told,) = [event for event in events if event.kind == "upstream.refused"]
        assert told.subject == "a/v1"
        assert "(401); the key is that of the environment variable FAR_KEY" in told.text
        await rig.down("b")
        said = await ask(rig, "")
        assert said.status_code == 503
        assert "FAR_KEY" not in said.text
    (line,) = [record for record in caplog.records if "event=upstream.refused" in record.getMessage()]
    assert line.levelname == "WARNING"
    assert "sk-far" not in caplog.text


LONG = [{"role": "user", "content": "x" * 300}]


def lengths(**most: int) -> str:
    """Models by name, the first with the others as its fallbacks, and how many tokens each holds."""
    first, *others = most
    text = TENANTS.replace('models = ["a", "c"]', "")
    for name, n in most.items():
        text += model(name, f"fallbacks = {others}" if name == first else "") + f"foreign = {{ max_model_len = {n} }}\n"
    return text


@pytest.mark.parametrize("stream", [False, True])
async def test_what_is_too_long_for_one_model_goes_to_a_fallback_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    made: list[Mortal] = []

    def make(spec: object) -> Mortal:
        made.append(Mortal())
        return made[-1]

    async with edge(lengths(a=305, b=200, c=400), tmp_path, monkeypatch, make) as rig:
        reply = await ask(rig, messages=LONG, stream=stream)
        assert (reply.status_code, reply.headers.get("x-camshaft-fallback")) == (200, "a,b -> c"), reply.text
        # It was told by its length alone: only the one that holds it was asked.
        assert sum(len(backend.asked) for backend in made) == 1
        assert "x-camshaft-fallback" not in (await ask(rig)).headers


async def test_what_no_model_holds_is_refused_with_the_word_of_the_one_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with edge(lengths(a=305, b=200), tmp_path, monkeypatch) as rig:
        reply = await ask(rig, messages=LONG)
        error = reply.json()["error"]
        assert (reply.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "messages")
        assert "do not fit into the context of 305" in error["message"]
        assert "x-camshaft-fallback" not in reply.headers


async def test_what_a_model_that_is_down_would_hold_is_to_be_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with edge(lengths(a=400, b=100, c=400), tmp_path, monkeypatch) as rig:
        await rig.down("a")
        reply = await ask(rig, messages=LONG)
        assert (reply.status_code, reply.headers.get("x-camshaft-fallback")) == (200, "a,b -> c"), reply.text
        await rig.down("c")
        assert (await ask(rig, messages=LONG)).status_code == 503


async def test_a_server_that_shuts_down_tries_no_other_model(rig: Rig) -> None:
    class Cut(Mortal):
        async def stream(self, request: Request) -> AsyncIterator[Event]:
            rig.app.edge.draining = True
            yield Failed(Unavailable("over").info())

    version = rig.version("a")
    version.dispatch._backends = lambda name: cut
    cut = Cut()
    reply = await ask(rig)
    assert reply.status_code == 503
    assert "x-camshaft-fallback" not in reply.headers
    await cut.close()


async def test_the_deadline_is_one_for_all_models_that_are_asked(rig: Rig) -> None:
    seen: list[float] = []
    inner = rig.version("b").upstream.stream

    async def noted(request: Request) -> AsyncIterator[Event]:
        seen.append(request.arrived_at)
        async for event in inner(request):
            yield event

    rig.version("b").upstream.stream = noted
    rig.version("a").upstream.stream = late(rig, seen)
    assert (await ask(rig)).status_code == 200
    first, second = seen
    assert second <= first + 0.001  # the call came before it was read for the first time


def late(rig: Rig, seen: list[float]) -> Callable[[Request], AsyncIterator[Event]]:
    """A model that is down, and says so only after a while."""
    import asyncio

    async def stream(request: Request) -> AsyncIterator[Event]:
        seen.append(request.arrived_at)
        await asyncio.sleep(0.05)
        yield Failed(Unavailable("down").info())

    return stream


def test_fallbacks_that_lead_in_a_circle_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="lead back"):
        parse(model("a", 'fallbacks = ["b"]') + model("b", 'fallbacks = ["a"]'), tmp_path / "f.toml")


# --------------------------------------------------------------------------------------------------------------- versions

SPLIT = """
[models.a.versions.v1]
engine = "openai"
url = "http://127.0.0.1:1/v1"
weight = 50
[models.a.versions.v2]
engine = "openai"
url = "http://127.0.0.1:1/v1"
weight = 50
"""


@pytest.fixture
async def split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with edge(SPLIT + TENANTS.replace('"a", "c"', '"a"'), tmp_path, monkeypatch) as made:
        yield made


async def version(rig: Rig, key: str = ANN, headers: dict[str, str] | None = None, **more: object) -> str:
    reply = await ask(rig, key, headers=headers, **more)
    assert reply.status_code == 200, reply.text
    return reply.headers["x-camshaft-version"]


async def test_testers_alone_choose_a_version(split: Rig) -> None:
    for name in ("v1", "v2"):
        assert await version(split, TED, {"x-camshaft-version": name}) == name
    reply = await ask(split, ANN, headers={"x-camshaft-version": "v2"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (403, "forbidden")
    reply = await ask(split, TED, headers={"x-camshaft-version": "v9"})
    assert reply.status_code == 400
    assert "v1, v2" in reply.json()["error"]["message"]


async def test_a_session_keeps_its_version_by_header_and_by_field(split: Rig) -> None:
    by_header = [await version(split, headers={"x-session-id": f"s{i}"}) for i in range(24)]
    assert set(by_header) == {"v1", "v2"}
    assert by_header == [await version(split, BOB, {"x-session-id": f"s{i}"}, messages=ASK["messages"] * 3) for i in range(24)]
    by_field = [await version(split, session_id=f"s{i}") for i in range(24)]
    assert set(by_field) == {"v1", "v2"}
    assert by_field == [await version(split, session_id=f"s{i}") for i in range(24)]


async def test_a_tenant_without_sessions_keeps_its_version(split: Rig) -> None:
    for key in (ANN, BOB):
        assert len({await version(split, key, messages=[{"role": "user", "content": f"{i}"}]) for i in range(8)}) == 1


async def test_without_tenants_a_conversation_keeps_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By how it began, which each turn repeats (gateway failures, row 22)."""
    async with edge(SPLIT, tmp_path, monkeypatch) as rig:
        found = []
        for i in range(24):
            turns: list[dict[str, str]] = []
            mine = set()
            for turn in range(3):
                turns += [{"role": "user", "content": f"conversation {i}, turn {turn}"}]
                mine.add(await version(rig, "", messages=turns))
                turns += [{"role": "assistant", "content": "well"}]
            assert len(mine) == 1
            found.append(mine.pop())
        assert set(found) == {"v1", "v2"}
