"""The tasks of a round: what is run, in a process of its own, for which figures. Adding a measurement is adding a row to `tasks`."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import harness

from beside import served
from beside.setup import LLAMA, OPENVINO, TRANSFORMERS, Setup
from beside.shell import AbsentError, last_json, sh
from camshaft.config import EngineConfig, docs

Figures = dict[str, float]

BATCHES = {"8 x (128 + 128)": (8, 128, 128), "32 x (128 + 128)": (32, 128, 128)}
PREFILL = "prefill 512"
DECODE = "decode"
LONG = 4096
CASES = {PREFILL: (1, 512, 1), "16 + 1": (1, 16, 1), "16 + 129": (1, 16, 129), **BATCHES}  # for peers that tell whole seconds only

MACHINE, OURS = "machine", "camshaft"


class Task(NamedTuple):
    """`most_rounds` is less than all for what hardly varies or takes long."""

    name: str
    side: str
    run: Callable[[Setup], Figures]
    most_rounds: int = 1_000


# ------------------------------------------------------------------------------------------------------------------- runs


def _ours(asked: Mapping[str, Any], isa: str = "") -> Figures:
    env = harness.environment()
    env["PYTHONPATH"] += f":{Path(__file__).parents[1]}"
    return dict(
        last_json(sh(sys.executable, "-m", "beside.ours_child", json.dumps(asked), env=env | ({"CAMSHAFT_ISA": isa} if isa else {})))
    )


def _roofline(setup: Setup) -> Figures:
    figures: Figures = {}
    for threads in sorted({1, setup.threads}):
        asked = ("bench", "roofline", "--json", "--threads", str(threads))
        found = json.loads(sh(sys.executable, "-m", "camshaft.cli.main", *asked, env=harness.environment()))
        mark = "" if threads == setup.threads else ", 1 thread"
        figures |= {f"dram_gb_s{mark}": found["dram_gb_s"], f"int8_gop_s{mark}": found["int8_gop_s"]}
    return figures


def _speeds(kind: str, batches: Mapping[str, tuple[int, int, int]] = {}, isa: str = "") -> Callable[[Setup], Figures]:
    def run(setup: Setup) -> Figures:
        config = {"threads": setup.threads}
        asked = {"what": "speeds", "model": str(setup.file(kind)), "config": config, "batches": list(batches.values())}
        return _ours(asked, isa)

    return run


def _steps(what: str, config: Mapping[str, Any] = {}) -> Callable[[Setup], Figures]:
    def run(setup: Setup) -> Figures:
        kv_dtype = config.get("kv_dtype", "bf16")
        if kv_dtype not in docs(EngineConfig)["kv_dtype"].choices:
            raise AbsentError(f"this camshaft has no --kv-dtype {kv_dtype}")
        if what == "quality" and setup.text is None:
            raise AbsentError("no --text to score")
        asked = {"what": what, "model": str(setup.file("Q4_1")), "context": LONG, "kv_dtype": kv_dtype, "text": str(setup.text)}
        return _ours(asked | {"config": {"threads": setup.threads, **config}})

    return run


def _llama(kind: str, batches: Mapping[str, tuple[int, int, int]] = {}, avx2: bool = False) -> Callable[[Setup], Figures]:
    def run(setup: Setup) -> Figures:
        llama = setup.llama_avx2 if avx2 else setup.llama
        if llama is None:
            raise AbsentError(setup.absent[LLAMA])
        model = setup.file(kind)
        return llama.speeds(model, 512, 128) | {name: llama.batch(model, *case) for name, case in batches.items()}

    return run


def _prefill_in_turn(setup: Setup) -> Figures:
    """Ours and llama.cpp's on the files that suit them best, three times in turn within seconds, medians.

    A neighbour on the same machine comes and goes in less time than a whole task takes, and a ratio needs both sides under the same one.
    """
    if setup.llama is None:
        raise AbsentError(setup.absent[LLAMA])
    theirs = setup.file("Q4_0")
    asked = {"what": "prefill", "model": str(setup.file("Q4_1")), "config": {"threads": setup.threads}}
    pairs = [(_ours(asked)[PREFILL], setup.llama.prefill(theirs, 512)) for _ in range(3)]
    return {side: statistics.median(values) for side, values in zip((OURS, LLAMA), zip(*pairs, strict=True), strict=True)}


def _http(setup: Setup) -> Figures:
    case = BATCHES["32 x (128 + 128)"]
    asked = {"what": "batch", "model": str(setup.file("Q4_1")), "config": {"threads": setup.threads}, "case": case}
    return served.http(setup.file("Q4_1"), setup.threads, case, lambda: _ours(asked)["gen_tok_s"])


def _whole_calls(seconds: Callable[[Setup], Mapping[str, float]]) -> Callable[[Setup], Figures]:
    """Figures of a peer that tells the seconds of whole calls. Decode is 128 tokens after the first, as everywhere here."""

    def run(setup: Setup) -> Figures:
        took = seconds(setup)
        figures = {PREFILL: 512 / took[PREFILL], DECODE: 128 / (took["16 + 129"] - took["16 + 1"])}
        return figures | {name: n * gen / took[name] for name, (n, _, gen) in BATCHES.items()}

    return run


def _openvino(setup: Setup) -> Mapping[str, float]:
    if setup.openvino is None:
        raise AbsentError(setup.absent[OPENVINO])
    return setup.openvino.seconds(CASES)


def _transformers(setup: Setup) -> Mapping[str, float]:
    if setup.transformers is None:
        raise AbsentError(setup.absent[TRANSFORMERS])
    return setup.transformers.seconds(setup.file("Q4_1"), CASES)


# ------------------------------------------------------------------------------------------------------------------ table


def tasks(avx512: bool) -> tuple[Task, ...]:
    """In the order of the first round; every second round runs them from the last to the first."""
    table = (
        Task("roofline", MACHINE, _roofline),
        Task("camshaft Q4_1", OURS, _speeds("Q4_1", BATCHES)),
        Task("http", OURS, _http),
        Task("llama.cpp Q4_0", LLAMA, _llama("Q4_0", BATCHES)),
        Task("OpenVINO", OPENVINO, _whole_calls(_openvino)),
        Task("llama.cpp Q4_1", LLAMA, _llama("Q4_1")),
        Task("prefill in turn", LLAMA, _prefill_in_turn),
        Task("transformers", TRANSFORMERS, _whole_calls(_transformers), 1),
        Task("verify", OURS, _steps("verify")),
        Task("scaling", OURS, _steps("scaling")),
        Task("long", OURS, _steps("long_decode", {"max_model_len": LONG + 96, "max_num_seqs": 1})),
        Task("camshaft Gemma", OURS, _speeds("Gemma")),
        Task("llama.cpp Gemma", LLAMA, _llama("Gemma")),
        Task("camshaft Q8_0", OURS, _speeds("Q8_0")),
        Task("llama.cpp Q8_0", LLAMA, _llama("Q8_0")),
        Task("camshaft BF16", OURS, _speeds("BF16")),
        Task("llama.cpp BF16", LLAMA, _llama("BF16")),
        Task("start", OURS, lambda setup: served.start(setup.file("Q4_1"), setup.threads)),
        Task("resident", OURS, lambda setup: served.resident(setup.file("Q4_1"), setup.threads), 1),
        Task("room, bf16", OURS, _steps("capacity", {"kv_memory": "256M"}), 1),
        Task("room, int8", OURS, _steps("capacity", {"kv_memory": "256M", "kv_dtype": "int8"}), 1),
        Task("quality, bf16", OURS, _steps("quality"), 1),
        Task("quality, int8", OURS, _steps("quality", {"kv_dtype": "int8"}), 1),
    )
    if not avx512:
        return table
    return (
        *table,
        Task("camshaft avx2", OURS, _speeds("Q4_1", BATCHES, isa="avx2")),
        Task("llama.cpp avx2", LLAMA, _llama("Q4_0", BATCHES, avx2=True)),
    )
