"""The way round ASGI for a stream's bytes: the same bytes in the same order, and the long way wherever the wire refuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from api_doubles import CHAT_PATH, HI, TEXT_PATH, Asgi, Scripted, app_over, chunks_of, say
from camshaft.api.call import WIRE
from camshaft.bench.sse_client import post
from http_server import server


class Wire:
    """Takes what `takes` says, into the same list as the messages."""

    def __init__(self, call: Asgi, takes: list[bool]) -> None:
        self._call = call
        self._takes = takes
        self.n_taken = 0

    def write(self, data: bytes) -> bool:
        taken = self._takes.pop(0) if self._takes else True
        if taken:
            self.n_taken += 1
            self._call.sent.append({"type": "wire", "body": data})
        return taken


@pytest.mark.parametrize("takes", [[], [False], [True, False, True], [False] * 9])
@pytest.mark.parametrize(("path", "prompt"), [(CHAT_PATH, HI), (TEXT_PATH, {"prompt": "x"})])
async def test_bytes_come_in_order_whichever_way_they_go(path: str, prompt: dict[str, Any], takes: list[bool]) -> None:
    words = ["one ", "two ", "three ", "four ", "five"]
    call = Asgi(app_over(Scripted(lambda _: say(*words))), path, [json.dumps(prompt | {"stream": True}).encode()])
    wire = Wire(call, list(takes))
    call._scope["extensions"] = {WIRE: wire}
    await call.run()
    kinds = [message["type"] for message in call.sent]
    assert kinds[0] == "http.response.start", "the head never goes round"
    assert kinds[-1] == "http.response.body", "nor does the end"
    texts = [c["choices"][0].get("text") or c["choices"][0].get("delta", {}).get("content") or "" for c in chunks_of(call.body.decode())]
    assert "".join(texts) == "".join(words)
    assert (wire.n_taken > 0) == (takes != [False] * 9)


async def test_a_real_server_sends_whole_events_by_it() -> None:
    words = [f"word{i} " for i in range(2000)]
    with server(lambda: app_over(Scripted(lambda _: say(*words)))) as running:
        reply = await post(running.target, TEXT_PATH, json.dumps({"prompt": "x", "stream": True}).encode(), deadline_s=20)
    texts = [json.loads(e.data)["choices"][0]["text"] for e in reply.events if e.data != "[DONE]"]
    assert "".join(texts) == "".join(words)
    assert reply.events[-1].data == "[DONE]"


async def test_a_client_that_reads_late_gets_all_of_it() -> None:
    words = ["x" * 4000] * 2000  # more than any socket holds
    with server(lambda: app_over(Scripted(lambda _: say(*words)))) as running:
        reader, writer = await asyncio.open_connection(running.target.host, running.target.port)
        body = json.dumps({"prompt": "x", "stream": True}).encode()
        writer.write(
            b"POST %s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (TEXT_PATH.encode(), len(body), body)
        )
        await asyncio.sleep(0.3)
        whole = await asyncio.wait_for(reader.read(-1), 20)
        writer.close()
    assert whole.count(b"x" * 4000) == len(words)
    assert whole.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
