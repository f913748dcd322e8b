"""The overhead bench: its client sees what came, its lines judge what it saw."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from camshaft.bench.fake_openai import FakeOpenAI, Play


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = Path(__file__).parents[3] / "bench"
    monkeypatch.syspath_prepend(str(folder))
    return folder


def body(play: dict[str, Any], *, stream: bool) -> str:
    return json.dumps({"model": "fake", "stream": stream, "messages": [{"role": "user", "content": json.dumps(play)}], "max_tokens": 100})


async def test_the_client_counts_answers_tokens_and_what_stays_open(bench: Path) -> None:
    load = importlib.import_module("beside.load")
    fake = FakeOpenAI()
    await fake.start()

    async def run(kind: str, asked: str, **more: Any) -> dict[str, Any]:
        task = load.Task("127.0.0.1", fake.port, kind, asked, **{"connections": 4, "seconds": 0.1, **more})
        return dict(await load.run(task))

    for stream in (False, True):
        found = await run("closed", body({"n": 8}, stream=stream))
        assert found["rate"] > 0
        assert found["tokens_s"] == pytest.approx(8 * found["rate"], rel=0.5)
        assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert (await run("rate", body({"n": 1}, stream=False), rate=50.0))["rate"] > 0
    assert (await run("idle", body({"n": 3, "token_s": 60.0}, stream=True)))["streams"] == 4
    fake.script = lambda asked: Play(status=500)
    with pytest.raises(RuntimeError, match="not an answer"):
        await run("closed", body({}, stream=False))
    await fake.close()


def test_a_bar_is_judged_by_medians_and_open_where_a_side_is_missing(bench: Path) -> None:
    overhead = importlib.import_module("overhead")
    rounds = overhead.Rounds()
    assert all(line.held is None for line in overhead.bars(rounds))

    def put(what: str, side: str, **figures: float) -> None:
        rounds.found.setdefault(what, {}).setdefault(side, []).append(figures)

    for rate in (100.0, 400.0, 301.0):
        put("short", "camshaft", rate=rate, share=1.0)
    put("short", "litellm", rate=100.0, share=1.0)
    put("streams", "camshaft", rate=1.0, tokens_s=299.0, share=1.0)
    put("streams", "litellm", rate=1.0, tokens_s=100.0, share=1.0)
    put("half of camshaft", "camshaft", p50_ms=3.0)
    put("half of camshaft", "direct", p50_ms=1.5)
    put("idle", "camshaft", share=0.02)
    put("empty", "camshaft", share=0.015)
    assert [line.held for line in overhead.bars(rounds)] == [True, False, True, True]
    assert "301" in overhead.table(rounds, ("direct", "camshaft", "litellm"))
