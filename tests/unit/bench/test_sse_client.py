"""The measuring client: answers as HTTP says, each event with the moment at which it came."""

from __future__ import annotations

import asyncio

import pytest

from camshaft.bench.sse_client import Target, post


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
