"""A minimal HTTP client in a process of its own: sends all requests at once, counts events, and says what it cost itself.

    echo '{"host": ..., "port": ..., "bodies": [BODY, ...]}' | python -P client.py

One thread, one selector, no parsing of what it counts. Prints {"seconds", "first_s": [...], "events", "tokens", "cpu_s"}; seconds are from
the first byte sent to the last byte read, `first_s` to the first event with text. Standard library only.
"""

from __future__ import annotations

import json
import re
import selectors
import socket
import sys
import time

PATH = "/v1/completions"
LIMIT_S = 600.0
TEXT = re.compile(rb'"text":"[^"]')
TOKENS = re.compile(rb'"completion_tokens":(\d+)')
TAIL = 4096  # bytes kept of each stream: the last events, of which usage is one


class Stream:
    """One request under way. Times are time.perf_counter() seconds."""

    def __init__(self, host: str, port: int, body: bytes) -> None:
        self.socket = socket.create_connection((host, port))
        head = f"POST {PATH} HTTP/1.1\r\nhost: {host}:{port}\r\nconnection: close\r\ncontent-type: application/json\r\n"
        self._request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
        self.first_at = 0.0
        self.n_events = 0
        self._tail = b""
        self._head = b""

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.socket.sendall(self._request)

    def read(self) -> bool:
        """Takes what has come; False at the end."""
        part = self.socket.recv(65_536)
        if not part:
            return False
        self._head = self._head or part[:64]
        self.n_events += part.count(b"data: ")
        self._tail = (self._tail + part)[-TAIL:]
        if not self.first_at and TEXT.search(self._tail):
            self.first_at = time.perf_counter()
        return True

    def tokens(self) -> int:
        """Raises RuntimeError for anything but a complete stream."""
        found = TOKENS.findall(self._tail)
        if b" 200 " not in self._head or b"[DONE]" not in self._tail or not found:
            raise RuntimeError(f"a request failed: {self._head!r} ... {self._tail[-300:]!r}")
        return int(found[-1])


def run(host: str, port: int, bodies: list[bytes]) -> dict[str, object]:
    """Raises RuntimeError for a stream that fails, TimeoutError after ten minutes."""
    streams = [Stream(host, port, body) for body in bodies]
    selector = selectors.DefaultSelector()
    cpu = time.process_time()
    began = time.perf_counter()
    for stream in streams:
        stream.send()
        selector.register(stream.socket, selectors.EVENT_READ, stream)
    while selector.get_map():
        ready = selector.select(LIMIT_S)
        if not ready:
            raise TimeoutError("nothing came for ten minutes")
        for key, _ in ready:
            if not key.data.read():
                selector.unregister(key.fileobj)
                key.data.socket.close()
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "first_s": [stream.first_at - stream.sent_at for stream in streams],
        "events": sum(stream.n_events for stream in streams),
        "tokens": sum(stream.tokens() for stream in streams),
        "cpu_s": time.process_time() - cpu,
    }


def main() -> int:
    asked = json.load(sys.stdin)
    sys.stdout.write(json.dumps(run(asked["host"], asked["port"], [json.dumps(body).encode() for body in asked["bodies"]])) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
