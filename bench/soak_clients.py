"""The clients of the soak: calls of every kind until the time is up. Prints what became of them as JSON.

python bench/soak_clients.py http://127.0.0.1:8000 [--clients 256] [--seconds 300]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

from camshaft.bench.serve import WORDS
from camshaft.bench.sse_client import Reply, Target, connected, post

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
DEADLINE_S = 170.0  # more than the server's own, so that a request without an end is a violation
BAD: tuple[dict[str, Any], ...] = (
    {"temperature": -1},
    {"nonsense": 1},
    {"messages": []},
    {"model": "none"},
    {"n": 0},
    {"n": 10**6},
    {"top_p": 0},
    {"max_tokens": -1},
    {"logit_bias": {"1": 1e9}},
    {"messages": [{"role": "user", "content": "x " * 9000}]},
    {"messages": "wrong"},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": 7}}}},
)


class Crowd:
    """One seed, many clients. `calls` counts how calls ended; `violations` describes those that ended wrongly."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._dice = random.Random(seed)
        self.calls: Counter[str] = Counter()
        self.violations: list[str] = []

    async def client(self, until: float) -> None:
        while time.monotonic() < until:
            kind = self._dice.random()
            try:
                if kind < 0.15:
                    await self._err()
                elif kind < 0.35:
                    await self._leave()
                else:
                    await self._ask(stream=kind < 0.9)
            except (OSError, TimeoutError, ValueError, EOFError) as error:
                self.calls["broken"] += 1
                self._violation(
                    f"{type(error).__name__} {error}: nothing ended the request within {DEADLINE_S:g} s, or the connection broke"
                )

    def _violation(self, what: str) -> None:
        if len(self.violations) < 100:
            self.violations.append(what[:500])

    def _body(self, *, stream: bool) -> tuple[str, dict[str, Any]]:
        dice = self._dice
        n_words = 800 if dice.random() < 0.02 else dice.randint(1, 40)
        words = " ".join(dice.choices(WORDS, k=n_words))
        fields: dict[str, Any] = {"max_tokens": dice.randint(1, 32), "stream": stream, "ignore_eos": dice.random() < 0.5}
        if dice.random() < 0.5:
            fields |= {"temperature": 0.8, "top_p": 0.9, "seed": dice.randrange(1000)}
        if dice.random() < 0.1:
            fields["n"] = 2
        if dice.random() < 0.1:
            fields["stop"] = ["the ", "\n\n"]
        if dice.random() < 0.05:
            return COMPLETIONS, fields | {"prompt": words, "logprobs": 2}
        if dice.random() < 0.05:
            fields["response_format"] = {"type": "json_object"}
        if dice.random() < 0.5:
            return COMPLETIONS, fields | {"prompt": words}
        system = {"role": "system", "content": "You are a mechanic. " * 8}
        return CHAT, fields | {"messages": [system, {"role": "user", "content": words}]}

    async def _ask(self, *, stream: bool) -> None:
        path, body = self._body(stream=stream)
        reply = await post(self._target, path, json.dumps(body).encode(), deadline_s=DEADLINE_S)
        ended, problem = judge(reply, body.get("n", 1), stream=stream)
        self.calls[ended] += 1
        if problem:
            self._violation(f"{path} {json.dumps(body)[:200]}: {problem}")

    async def _err(self) -> None:
        body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "stream": self._dice.random() < 0.5} | self._dice.choice(
            BAD
        )
        raw = json.dumps(body).encode()
        if self._dice.random() < 0.1:
            raw = raw[: len(raw) // 2]
        reply = await post(self._target, CHAT, raw, deadline_s=DEADLINE_S)
        self.calls["bad, refused"] += 1
        if not 400 <= reply.status < 500 or "error" not in json.loads(reply.body):
            self._violation(f"{raw[:200]!r} was answered {reply.status} {reply.body[:200]!r}")

    async def _leave(self) -> None:
        path, body = self._body(stream=self._dice.random() < 0.8)
        raw = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n".encode()
        async with connected(self._target) as (reader, writer):
            writer.write(head + raw)
            await writer.drain()
            try:
                async with asyncio.timeout(self._dice.choice((0.0, 0.05, 1.0, 10.0)) * self._dice.random()):
                    await reader.readexactly(self._dice.choice((1, 400, 1200)))
            except (TimeoutError, asyncio.IncompleteReadError):
                pass
        self.calls["left"] += 1


def judge(reply: Reply, n: int, *, stream: bool) -> tuple[str, str]:
    """How a call ended, and what is wrong with that: nothing, or a sentence."""
    if reply.status != 200:
        return f"refused {reply.status}", "" if "error" in json.loads(reply.body) else f"an error without a body: {reply.body[:200]!r}"
    if not stream:
        reasons = [choice["finish_reason"] for choice in json.loads(reply.body)["choices"]]
        return "complete", "" if len(reasons) == n and all(reasons) else f"finish reasons {reasons}"
    data = [event.data for event in reply.events]
    if data.count("[DONE]") != 1 or data[-1] != "[DONE]":
        return "broken", f"[DONE] {data.count('[DONE]')} times; last {data[-1:]}"
    chunks = [json.loads(text) for text in data[:-1]]
    n_errors = sum("error" in chunk for chunk in chunks)
    ends = Counter(choice["index"] for chunk in chunks for choice in chunk.get("choices", ()) if choice["finish_reason"])
    if n_errors:
        return "ended by an error event", "" if n_errors == 1 and "error" in chunks[-1] else f"{n_errors} error events"
    return "streamed", "" if ends == Counter(range(n)) else f"finish reasons of choices: {dict(ends)}, not one for each of {n}"


async def crowd(target: Target, n_clients: int, seconds: float, seed: int) -> Crowd:
    made = Crowd(target, seed)
    until = time.monotonic() + seconds
    await asyncio.gather(*(made.client(until) for _ in range(n_clients)))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("url")
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    url = urlsplit(args.url)
    made = asyncio.run(crowd(Target(url.hostname or "127.0.0.1", url.port or 80), args.clients, args.seconds, args.seed))
    sys.stdout.write(json.dumps({"calls": made.calls, "violations": made.violations}) + "\n")
    return 1 if made.violations else 0


if __name__ == "__main__":
    sys.exit(main())
