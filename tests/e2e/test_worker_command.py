"""`camshaft worker` over a real model, as a gateway starts it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from camshaft.cluster.process import ProcessLauncher
from camshaft.cluster.settings import WorkerSettings
from camshaft.config import EngineConfig
from camshaft.engine.async_engine import AsyncEngine
from camshaft.types import Delta, Event, Failed, Finished, Grammar, Request, Resume, SamplingParams, Started, TextPrompt
from gguf_writer import Tiny, tiny_model
from worker_rig import PATIENT

CONFIG = EngineConfig(kv_memory="2M", threads=1, max_num_seqs=4, max_num_batched_tokens=64)
SAMPLING = SamplingParams(temperature=0.9, seed=7, max_tokens=200, ignore_eos=True, logprobs=1, repetition_penalty=1.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("worker") / "tiny.gguf", Tiny(weights="Q4_1"))


def told(events: Sequence[Event]) -> tuple[str, tuple[int, ...], list[float | None]]:
    deltas = [e for e in events if isinstance(e, Delta)]
    return (
        "".join(d.text for d in deltas),
        tuple(i for d in deltas for i in d.ids),
        [p.logprob for d in deltas for p in d.logprobs],
    )


async def test_a_worker_says_what_it_is_and_answers_as_an_engine_in_this_process_does(model: Path) -> None:
    states: list[str] = []
    here = AsyncEngine.from_model(str(model), CONFIG)
    launcher = ProcessLauncher(WorkerSettings(model=str(model), public_name="tiny", engine=CONFIG), PATIENT)
    backend = await launcher.launch("r0", states.append)
    try:
        assert states == ["warming"]
        info, limits = backend.info, here.engine.limits
        assert (info.numerics_id, info.max_model_len, info.max_num_seqs) == (here.numerics_id, limits.max_model_len, 4)
        assert (info.max_num_batched_tokens, info.block_size) == (64, CONFIG.block_size)
        assert info.kv_tokens > 0
        for grammar in (None, Grammar("regex", "[a-z]{3}[0-9]{4}")):
            sampling = SamplingParams(temperature=1.0, seed=3, max_tokens=20, logprobs=2, grammar=grammar)
            request = Request(id="r", prompt=TextPrompt("the quick brown fox"), sampling=sampling)
            answers = [[event async for event in upstream.stream(request)] for upstream in (backend, here)]
            assert isinstance(answers[0][0], Started)
            assert told(answers[0]) == told(answers[1])
            assert answers[0][-1] == answers[1][-1]
        async with asyncio.timeout(30):
            while backend.load.running != 0:  # noqa: ASYNC110 - it reports by itself
                await asyncio.sleep(0.01)
        assert backend.load.at > 0
        assert 0 <= backend.load.utilisation <= 1
        assert b'camshaft_generation_tokens_total{model_name="tiny"}' in await backend.metrics()
    finally:
        await backend.close()
        await here.close()


async def test_a_stream_whose_worker_is_killed_goes_on_at_another_without_a_seam(model: Path) -> None:
    """Text that comes twice, or never, when a replica dies (gateway failures, row 14)."""
    launcher = ProcessLauncher(WorkerSettings(model=str(model), engine=CONFIG), PATIENT)
    second = await launcher.launch("second", lambda state: None)
    request = Request(id="r", prompt=TextPrompt("the quick brown fox"), sampling=SAMPLING)
    first = second
    try:
        undisturbed = [event async for event in second.stream(request)]
        seen: list[Event] = []
        for i in range(10):  # on a busy machine all of an answer may be there before its fifth event is read
            first = await launcher.launch(f"first-{i}", lambda state: None)
            seen.clear()
            async for event in first.stream(request):
                seen.append(event)
                if len(seen) == 5:
                    os.kill(first.pid, signal.SIGKILL)
            if isinstance(seen[-1], Failed):
                break
            await first.close()
        assert isinstance(seen[-1], Failed), "it was too quick to be killed in the middle"
        assert seen[-1].error.code == "replica_lost"
        text, ids, _ = told(seen)
        resumed = Request(id="r", prompt=request.prompt, sampling=SAMPLING, resume=Resume(ids, len(text)))
        seen += [event async for event in second.stream(resumed)]
        assert told(seen) == told(undisturbed)
        end, wanted = seen[-1], undisturbed[-1]
        assert isinstance(end, Finished)
        assert isinstance(wanted, Finished)
        assert (end.reason, end.usage.n_prompt, end.usage.n_output) == (wanted.reason, wanted.usage.n_prompt, wanted.usage.n_output)
    finally:
        await asyncio.gather(first.close(), second.close())
