"""TLS by file, and its renewal; CORS; keys by digest."""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from api_doubles import CHAT_PATH, HI, Scripted, app_over, client_of, served
from camshaft.api.auth import Keys
from camshaft.api.server import serve
from camshaft.api.tls import context_of, renew
from camshaft.config import ServerConfig
from camshaft.errors import ConfigError, Unauthorized
from certificates import make_certificate, needs_openssl

ORIGIN = "https://app.example.com"


@contextmanager
def serving(tls: ssl.SSLContext) -> Iterator[str]:
    """A server over TLS in a thread, which heeds no signals; its address."""
    found: list[str] = []
    listening, end = threading.Event(), threading.Event()

    async def main() -> None:
        stop = asyncio.Event()

        def on_listening(address: str) -> None:
            found.append(address)
            listening.set()

        task = asyncio.ensure_future(serve(app_over(Scripted()), ServerConfig(port=0), on_listening, stop, tls=tls, signals=False))
        await asyncio.to_thread(end.wait, 60)
        stop.set()
        await task

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert listening.wait(20)
        yield found[0]
    finally:
        end.set()
        thread.join(30)
    assert not thread.is_alive()


def asks(address: str, trusted: str) -> None:
    """A whole streamed answer over a new connection, from who shows this certificate. Raises httpx.ConnectError where another is shown."""
    with httpx.Client(verify=ssl.create_default_context(cafile=trusted), timeout=20) as client:
        reply = client.post(f"{address}{CHAT_PATH}", json=HI | {"stream": True})
    assert reply.status_code == 200
    assert reply.text.endswith("data: [DONE]\n\n")


@needs_openssl
def test_it_speaks_tls_and_takes_a_new_certificate_without_a_stop(tmp_path: Path) -> None:
    first, second = make_certificate(tmp_path, "first"), make_certificate(tmp_path, "second")
    context = context_of(*first)
    with serving(context) as address:
        assert address.startswith("https://127.0.0.1:")
        asks(address, first[0])
        with pytest.raises(ConfigError, match="are no certificate and its key"):
            renew(context, first[0], second[1])
        asks(address, first[0])
        renew(context, *second)
        asks(address, second[0])
        with pytest.raises(httpx.ConnectError):
            asks(address, first[0])
        with httpx.Client(timeout=20) as plain, pytest.raises(httpx.RemoteProtocolError):
            plain.get(address.replace("https", "http"))


def test_files_that_are_no_certificate_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.pem").write_text("nothing of the kind")
    with pytest.raises(ConfigError, match=r"a\.pem.*without a password"):
        context_of(str(tmp_path / "a.pem"), str(tmp_path / "a.pem"))
    with pytest.raises(ConfigError, match="cannot read"):
        context_of(str(tmp_path / "none.pem"), str(tmp_path / "none.key"))


# --------------------------------------------------------------------------------------------------------------- cors


async def test_no_page_may_call_it_unless_its_origin_is_listed() -> None:
    app = app_over(Scripted())
    asking = {"origin": ORIGIN, "access-control-request-method": "POST", "access-control-request-headers": "authorization, content-type"}
    async with client_of(app) as client:
        reply = await client.options(CHAT_PATH, headers=asking)
        assert reply.status_code == 405
        assert "access-control-allow-origin" not in reply.headers
        app.origins = frozenset([ORIGIN.encode()])
        reply = await client.options(CHAT_PATH, headers=asking)
        assert reply.status_code == 204
        assert reply.headers["access-control-allow-origin"] == ORIGIN
        assert reply.headers["access-control-allow-headers"] == "authorization, content-type"
        reply = await client.options(CHAT_PATH, headers=asking | {"access-control-request-headers": "a:b"})
        assert "access-control-allow-headers" not in reply.headers
        for stream in (False, True):
            reply = await client.post(CHAT_PATH, json=HI | {"stream": stream}, headers={"origin": ORIGIN})
            assert (reply.status_code, reply.headers["access-control-allow-origin"], reply.headers["vary"]) == (200, ORIGIN, "origin")
        reply = await client.post(CHAT_PATH, content=b"{", headers={"origin": ORIGIN})
        assert (reply.status_code, reply.headers["access-control-allow-origin"]) == (400, ORIGIN)
        for other in ("https://evil.example.com", "null", ORIGIN + ":444"):
            reply = await client.post(CHAT_PATH, json=HI, headers={"origin": other})
            assert "access-control-allow-origin" not in reply.headers
            assert (await client.options(CHAT_PATH, headers=asking | {"origin": other})).status_code == 405


# --------------------------------------------------------------------------------------------------------------- keys


def test_keys_are_known_by_their_digests() -> None:
    digest = hashlib.sha256(b"sk-ann").digest()
    keys = Keys.of_digests([(digest, "ann"), (hashlib.sha256(b"sk-bob").digest(), "bob")])
    assert (keys.tenant(b"Bearer sk-ann"), keys.tenant(b"bearer sk-bob")) == ("ann", "bob")
    for wrong in (b"Bearer sk-an", b"Bearer " + digest, b"Bearer sha256:" + digest.hex().encode()):
        with pytest.raises(Unauthorized):
            keys.tenant(wrong)
    with pytest.raises(ConfigError, match="listed twice"):
        Keys.of_digests([(digest, "ann"), (digest, "bob")])


async def test_keys_are_rotated_while_it_serves() -> None:
    from camshaft.api.app import create_app
    from camshaft.api.directory import FixedModels
    from camshaft.observe.metrics import Metrics

    def keys(*given: str) -> Keys:
        return Keys.of_digests((hashlib.sha256(key.encode()).digest(), "ann") for key in given)

    directory = FixedModels([served(Scripted())], keys("old"))
    async with client_of(create_app(directory, ServerConfig(), Metrics())) as client:

        async def status(key: str) -> int:
            reply = await client.post(CHAT_PATH, content=json.dumps(HI), headers={"authorization": f"Bearer {key}"})
            return reply.status_code

        assert [await status(k) for k in ("old", "new")] == [200, 401]
        directory.keys = keys("old", "new")
        assert [await status(k) for k in ("old", "new")] == [200, 200]
        directory.keys = keys("new")
        assert [await status(k) for k in ("old", "new")] == [401, 200]
