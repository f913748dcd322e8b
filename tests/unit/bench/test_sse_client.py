"""The measuring client: events as the standard says, whatever the cut; answers as HTTP says."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from camshaft.bench.sse_client import SseParser, Target, post
from shared_data import shared_data_or_skip


def parsed(*chunks: bytes) -> list[tuple[str, str]]:
    parser = SseParser()
    return [(e.event, e.data) for chunk in chunks for e in parser.feed(chunk)]


def test_every_vector_of_the_conformance_file_parses_in_any_cut() -> None:
    data = shared_data_or_skip()
    vectors = json.loads((data / "conformance/sse_vectors.json").read_text())
    assert vectors
    for vector in vectors:
        chunks = [base64.b64decode(c) for c in vector["chunks_b64"]]
        want = [(e["event"], e["data"], e["id"]) for e in vector["whatwg_events"]]
        whole = b"".join(chunks)
        for cut in (chunks, [whole], [whole[i : i + 1] for i in range(len(whole))]):
            parser = SseParser()
            got = [tuple(e) for chunk in cut for e in parser.feed(chunk)]
            assert got == want, vector["name"]


def test_lines_end_in_lf_cr_or_crlf_even_when_cut_in_between() -> None:
    assert parsed(b"data: a\n\ndata: b\r\rdata: c\r\n\r\n") == [("message", "a"), ("message", "b"), ("message", "c")]
    assert parsed(b"data: a\r", b"\n\r", b"\ndata: b\r", b"\r") == [("message", "a"), ("message", "b")]


def test_data_lines_join_and_comments_and_open_events_are_dropped() -> None:
    assert parsed(b": hello\nevent: x\ndata: 1\ndata:2\n\ndata: never ended") == [("x", "1\n2")]


async def test_a_stream_is_read_event_by_event_with_rising_stamps() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.readexactly(2)
        assert b"authorization: Bearer k\r\n" in head
        assert body == b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for part in (b"data: a", b"b\n\n", b"data: [DONE]\n\n"):
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reply = await post(Target("127.0.0.1", port, "k"), "/x", b"{}", deadline_s=10)
    assert reply.status == 200
    assert [e.data for e in reply.events] == ["ab", "[DONE]"]
    assert reply.sent_at <= reply.events[0].at <= reply.events[1].at <= reply.done_at


async def test_a_plain_answer_is_read_whole_and_nonsense_is_an_error() -> None:
    replies = [b"HTTP/1.1 429 Too Many\r\nretry-after: 3\r\ncontent-length: 4\r\n\r\nfull", b"SSH-2.0\r\n\r\n"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(replies.pop(0))
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        target = Target("127.0.0.1", server.sockets[0].getsockname()[1])
        reply = await post(target, "/x", b"{}", deadline_s=10)
        assert (reply.status, reply.body, reply.headers["retry-after"]) == (429, b"full", "3")
        with pytest.raises(ValueError, match="not an HTTP answer"):
            await post(target, "/x", b"{}", deadline_s=10)
