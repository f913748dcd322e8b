"""The HTTP client: connections kept and replaced, every way for an answer to go wrong, bounds, flow control."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from camshaft.cluster.exchange import HIGH_BYTES, MAX_BARE_BYTES, HttpFault, Waits
from camshaft.cluster.http1 import Http1, parse_address
from camshaft.errors import ConfigError
from certificates import make_certificate, needs_openssl
from raw_server import HEAD, LAST, Raw, RawServer, chunk, plain, raw_server


def soon(seconds: float = 20.0, first_s: float = 20.0, idle_s: float = 20.0) -> Waits:
    return Waits(asyncio.get_running_loop().time() + seconds, first_s, idle_s)


def client_of(server: RawServer, **fixed: str) -> Http1:
    return Http1(parse_address(server.url), fixed)


async def whole(client: Http1, waits: Waits | None = None, body: bytes = b"{}") -> bytes:
    response = await client.send("POST", "/v1/x", waits or soon(), body=body)
    try:
        return await response.whole(1_000_000)
    finally:
        response.close()


async def fault_of(script: object, waits: Waits | None = None) -> HttpFault:
    async with raw_server(script) as server:  # type: ignore[arg-type]
        client = client_of(server)
        with pytest.raises(HttpFault) as caught:
            await whole(client, waits)
        client.close()
        return caught.value


async def test_a_connection_is_kept_and_requests_say_what_they_should() -> None:
    async def script(raw: Raw) -> None:
        raw.say(plain(b"%d" % len(raw.requests)))

    async with raw_server(script) as server:
        client = client_of(server, authorization="Bearer k")
        assert [await whole(client, body=b'{"a":1}') for _ in range(3)] == [b"1", b"2", b"3"]
        assert len(server.connections) == 1
        head, _, body = server.connections[0].requests[0].partition(b"\r\n\r\n")
        assert head.startswith(b"POST /v1/x HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n" % server.port)
        assert b"authorization: Bearer k" in head
        assert b"content-length: 7" in head
        assert body == b'{"a":1}'
        client.close()
        await asyncio.wait_for(server.connections[0].gone.wait(), 5)


async def test_a_body_is_read_as_it_comes() -> None:
    taken = asyncio.Event()

    async def script(raw: Raw) -> None:
        raw.say(b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD + chunk(b"one"))
        await taken.wait()
        raw.say(chunk(b"two") + LAST)

    async with raw_server(script) as server:
        client = client_of(server)
        response = await client.send("GET", "/", soon())
        assert response.status == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert await response.read() == b"one"
        taken.set()
        assert await response.read() == b"two"
        assert await response.read() == b""
        response.close()
        assert len(server.connections) == 1
        client.close()


async def test_a_body_may_end_with_the_connection() -> None:
    async def script(raw: Raw) -> None:
        raw.say(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        raw.hang_up()

    async with raw_server(script) as server:
        assert await whole(client_of(server)) == b"all of it"


async def test_a_connection_that_the_server_let_go_of_is_replaced() -> None:
    async def script(raw: Raw) -> None:
        if len(raw.requests) == 1:
            raw.say(plain(b"ok"))
        else:
            raw.hang_up()

    async with raw_server(script) as server:
        client = client_of(server)
        assert [await whole(client) for _ in range(3)] == [b"ok"] * 3
        assert len(server.connections) == 3
        client.close()


async def test_an_answer_too_many_is_not_taken_for_the_next_one() -> None:
    async def script(raw: Raw) -> None:
        raw.say(plain(b"first") + plain(b"smuggled") if len(server.connections) == 1 else plain(b"second"))

    async with raw_server(script) as server:
        client = client_of(server)
        assert [await whole(client) for _ in range(2)] == [b"first", b"second"]
        client.close()


async def test_an_answer_cut_short_is_a_fault_before_and_after_its_first_byte() -> None:
    async def at_once(raw: Raw) -> None:
        raw.hang_up()

    async def later(raw: Raw) -> None:
        raw.say(HEAD + chunk(b"some"))
        raw.hang_up()

    early, late = await fault_of(at_once), await fault_of(later)
    assert (early.kind, early.heard) == ("cut", False)
    assert (late.kind, late.heard) == ("cut", True)


async def test_what_came_before_the_fault_is_still_read() -> None:
    async def script(raw: Raw) -> None:
        raw.say(HEAD + chunk(b"some"))
        raw.hang_up()

    async with raw_server(script) as server:
        response = await client_of(server).send("GET", "/", soon())
        await asyncio.wait_for(server.connections[0].gone.wait(), 5)
        assert await response.read() == b"some"
        with pytest.raises(HttpFault):
            await response.read()


async def test_nobody_listening_is_a_fault_that_names_the_address() -> None:
    async with raw_server(lambda raw: asyncio.sleep(0)) as server:
        client = client_of(server)
    with pytest.raises(HttpFault, match=f"127.0.0.1:{server.port}") as caught:
        await whole(client)
    assert caught.value.kind == "connect"


async def test_silence_before_and_within_an_answer_ends_it() -> None:
    async def mute(raw: Raw) -> None:
        pass

    async def stalling(raw: Raw) -> None:
        raw.say(HEAD + chunk(b"some"))

    assert (await fault_of(mute, soon(first_s=0.02))).kind == "silent"
    assert (await fault_of(stalling, soon(idle_s=0.02))).kind == "silent"
    assert (await fault_of(stalling, soon(0.05))).kind == "late"


async def test_nonsense_is_a_fault() -> None:
    async def ssh(raw: Raw) -> None:
        raw.say(b"SSH-2.0-OpenSSH\r\n")

    async def endless_head(raw: Raw) -> None:
        raw.say(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * MAX_BARE_BYTES)

    async def endless_extension(raw: Raw) -> None:
        raw.say(HEAD + b"1;" + b"x" * 2 * MAX_BARE_BYTES)

    for script in (ssh, endless_head, endless_extension):
        assert (await fault_of(script)).kind == "nonsense", script


async def test_a_body_beyond_its_bound_is_a_fault() -> None:
    async def script(raw: Raw) -> None:
        raw.say(plain(b"x" * 1000))

    async with raw_server(script) as server:
        response = await client_of(server).send("GET", "/", soon())
        with pytest.raises(HttpFault, match="more than 999"):
            await response.whole(999)
        response.close()


async def test_leaving_early_closes_the_connection() -> None:
    async def script(raw: Raw) -> None:
        raw.say(HEAD + chunk(b"some"))

    async with raw_server(script) as server:
        client = client_of(server)
        response = await client.send("GET", "/", soon())
        response.close()
        await asyncio.wait_for(server.connections[0].gone.wait(), 5)
        task = asyncio.ensure_future(whole(client))
        while len(server.connections) < 2 or not server.connections[1].requests:  # noqa: ASYNC110 - the server says it in no other way
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await asyncio.wait_for(server.connections[1].gone.wait(), 5)


async def test_what_nobody_reads_stays_in_the_network_and_is_not_silence() -> None:
    piece = chunk(b"x" * 65_536)
    many = 200

    async def script(raw: Raw) -> None:
        raw.say(HEAD + piece * many + LAST)

    async with raw_server(script) as server:
        client = client_of(server)
        response = await client.send("GET", "/", soon(idle_s=0.05))
        await asyncio.sleep(0.2)  # four times the patience
        first = await response.read()
        assert len(first) < 4 * HIGH_BYTES
        rest = await response.whole(many * 65_536)
        assert len(first) + len(rest) == many * 65_536
        client.close()


async def test_abort_ends_what_runs_and_close_what_comes() -> None:
    async def script(raw: Raw) -> None:
        raw.say(HEAD)

    async with raw_server(script) as server:
        client = client_of(server)
        task = asyncio.ensure_future(whole(client))
        while not (server.connections and server.connections[0].requests):  # noqa: ASYNC110 - the server says it in no other way
            await asyncio.sleep(0)
        client.abort("the process ended")
        with pytest.raises(HttpFault, match="the process ended"):
            await task
        client.close("closed")
        with pytest.raises(HttpFault, match="closed"):
            await whole(client)


@pytest.mark.parametrize(
    "url", ["", "localhost:80", "ftp://x", "http://", "http://x/?a=b", "http://x:99999", "http://x\n", "http://u:secret@x"]
)
def test_an_address_that_cannot_be_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(url)
    assert "secret" not in str(caught.value)


def test_addresses() -> None:
    assert parse_address("http://[::1]:8000/v1/").url == "http://[::1]:8000/v1"
    assert parse_address("https://api.example.com/v1").authority == "api.example.com"
    assert parse_address("https://api.example.com").port == 443


async def test_a_header_cannot_end_its_line() -> None:
    async def script(raw: Raw) -> None:
        raw.say(plain(b"ok"))

    with pytest.raises(ValueError, match="header"):
        Http1(parse_address("http://x"), {"authorization": "a\r\nb: c"})
    async with raw_server(script) as server:
        client = client_of(server)
        for id in ("a\r\nb: c", "good"):
            (await client.send("GET", "/", soon(), headers={"x-request-id": id})).close()
        heads = b"".join(r for c in server.connections for r in c.requests)
        assert b"b: c" not in heads
        assert b"x-request-id: good\r\n" in heads
        client.close()


@needs_openssl
async def test_tls_trusts_whom_it_is_told_to_and_nobody_else(tmp_path: Path) -> None:
    async def script(raw: Raw) -> None:
        raw.say(plain(b"ok"))

    cert, key = make_certificate(tmp_path, "server")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cert, key)
    async with raw_server(script, tls) as server:
        address = parse_address(f"https://127.0.0.1:{server.port}")
        client = Http1(address, ca_file=cert)
        assert [await whole(client) for _ in range(2)] == [b"ok"] * 2
        assert len(server.connections) == 1
        client.close()
        with pytest.raises(HttpFault, match="cannot be reached") as caught:
            await whole(Http1(address))
        assert caught.value.kind == "connect"
    with pytest.raises(ConfigError, match="cannot be read"):
        Http1(address, ca_file=str(tmp_path / "nowhere"))
