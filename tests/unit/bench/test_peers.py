"""The bench beside peers is only as good as its judgement: what a line compares, what holds it, what becomes of a part measured again."""

from __future__ import annotations

import importlib
import json
import socket
import threading
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """bench/peers.py as a module; `beside` is its package."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("peers")


def part(bench: ModuleType, name: str) -> ModuleType:
    return importlib.import_module(f"beside.{name}")


def line(bench: ModuleType, words: str) -> object:
    (found,) = (each for each in part(bench, "lines").lines(False) if words in each.name)
    return found


def test_every_line_needs_tasks_that_exist(bench: ModuleType) -> None:
    for avx512 in (False, True):
        known = [task.name for task in part(bench, "tasks").tasks(avx512)]
        lines = part(bench, "lines").lines(avx512)
        assert len(known) == len(set(known))
        assert len({each.name for each in lines}) == len(lines)
        assert {task for each in lines for task in each.tasks} == set(known)


def test_a_ratio_is_taken_within_each_round_and_beside_the_peer_with_the_best_median(bench: ModuleType) -> None:
    rounds = [
        {"camshaft Q4_1": {"decode": 30.0}, "llama.cpp Q4_0": {"decode": 10.0}, "llama.cpp Q4_1": {"decode": 15.0}},
        {"camshaft Q4_1": {"decode": 10.0}, "llama.cpp Q4_0": {"decode": 4.0}, "llama.cpp Q4_1": {"decode": 4.0}},
        {"camshaft Q4_1": {"decode": 20.0}, "llama.cpp Q4_0": {"decode": 40.0}, "llama.cpp Q4_1": {"decode": 16.0}},
    ]
    judged = part(bench, "lines").judge(line(bench, "decode, batch 1, over llama.cpp"), rounds, {})
    assert judged.found.beside == "llama.cpp Q4_1"
    assert judged.found.values == [2.0, 2.5, 1.25]
    assert (judged.figure, judged.verdict) == (2.0, "held, aim reached")


def test_a_peer_that_ran_in_one_round_only_is_compared_by_that(bench: ModuleType) -> None:
    batch = "8 x (128 + 128)"
    rounds = [{"camshaft Q4_1": {batch: 20.0}, "transformers": {batch: 10.0}}, {"camshaft Q4_1": {batch: 30.0}}]
    judged = part(bench, "lines").judge(line(bench, f"{batch}, generated, over"), rounds, {})
    assert judged.found.values == [2.0, 3.0]


def test_a_ceiling_is_held_from_below_and_a_floor_from_above(bench: ModuleType) -> None:
    judge = part(bench, "lines").judge
    verified = line(bench, "4 tokens verified")
    for four, verdict in ((1.3, "held, aim reached"), (1.4, "held"), (1.6, "**missed**")):
        assert judge(verified, [{"verify": {"1 token": 1.0, "4 tokens": four}}], {}).verdict == verdict
    start = line(bench, "second start")
    assert judge(start, [{"start": {"first_s": 9.0, "second_s": 1.2}}], {}).held is False


def test_a_share_uses_the_roofline_of_its_own_round(bench: ModuleType) -> None:
    ours = {"decode": 100.0, "tensor_bytes": 1e8}
    rounds = [{"roofline": {"dram_gb_s": gb_s}, "camshaft Q4_1": ours} for gb_s in (20.0, 12.5)]
    judged = part(bench, "lines").judge(line(bench, "decode, batch 1: share"), [*rounds, {"camshaft Q4_1": ours}], {})
    assert judged.found.values == [0.5, 0.8]


def test_what_was_not_measured_says_why_and_is_neither_held_nor_missed(bench: ModuleType) -> None:
    judged = part(bench, "lines").judge(line(bench, "over OpenVINO"), [], {"OpenVINO": "no wheel for this Python"})
    assert (judged.held, judged.verdict) == (None, "not measured")
    assert "no wheel for this Python" in judged.row()[1]
    assert "no wheel for this Python" in bench.report([judged]).splitlines()[-1]


def test_a_task_that_fails_twice_is_told_and_not_tried_again(bench: ModuleType) -> None:
    tasks, shell = part(bench, "tasks"), part(bench, "shell")
    tried: list[str] = []

    def fail(setup: object) -> dict[str, float]:
        tried.append("fails")
        raise shell.AbsentError("no compiler here")

    def work(setup: object) -> dict[str, float]:
        tried.append("works")
        return {"decode": 1.0}

    setup = part(bench, "setup").Setup(1, {})
    table = [tasks.Task("fails", "machine", fail), tasks.Task("works", "machine", work), tasks.Task("once", "machine", work, 1)]
    sitting = part(bench, "sitting").sit(setup, table, 3, [])
    assert tried == ["fails", "works", "works", "works", "fails", "works"]
    assert [sorted(seen) for seen in sitting.rounds] == [["once", "works"], ["works"], ["works"]]
    assert sitting.absent == {"fails": "no compiler here"}


def test_a_part_measured_again_takes_over_its_lines_alone(bench: ModuleType) -> None:
    sitting = part(bench, "sitting")
    verified, start = line(bench, "4 tokens verified"), line(bench, "second start")
    setup = part(bench, "setup").Setup(1, {})

    def sat(four: float, second_s: float, *lines: object) -> object:
        ran = [
            part(bench, "tasks").Task("verify", "machine", lambda setup: {"1 token": 1.0, "4 tokens": four}),
            part(bench, "tasks").Task("start", "machine", lambda setup: {"second_s": second_s}),
        ]
        return sitting.sit(setup, ran, 1, lines)

    whole, again = sat(1.2, 0.4, verified, start), sat(1.4, 0.9, verified)
    assert [each.figure for each in sitting.judged([verified, start], [whole, again])] == [1.4, 0.4]
    assert sitting.kept([whole, again]) == [whole, again]
    assert sitting.kept([whole, again, sat(1.1, 0.1, verified, start)]) != [whole, again]
    assert len(sitting.kept([whole, sat(1.1, 0.1, verified, start)])) == 1


def test_a_peer_keeps_its_first_settings_unless_others_are_clearly_faster(bench: ModuleType) -> None:
    tuning, shell = part(bench, "tuning"), part(bench, "shell")
    took = {"first": (1.0, 1.0, 1.0), "second": (0.99, 0.9, 2.0)}

    def seconds(name: str) -> dict[str, float]:
        if name not in took:
            raise shell.AbsentError("no such setting")
        return dict(zip(tuning.KINDS, took[name], strict=True))

    assert tuning.choose(["first", "second", "third"], seconds) == {"prefill": "first", "decode": "second", "batch": "first"}
    with pytest.raises(shell.AbsentError, match="no such setting"):
        tuning.choose(["third"], seconds)
    assert [tuning.kind_of(case) for case in ((1, 512, 1), (1, 16, 129), (8, 128, 128))] == ["prefill", "decode", "batch"]


ANSWER = (
    b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {"choices":[{"text":""}]}\n\n',
    b'data: {"choices":[{"text":"Pa',
    b'ris"}]}\n\ndata: {"choices":[],"usage":{"completion_tokens":7}}\n\ndata: [DONE]\n\n',
)


def serve_once(listener: socket.socket, parts: tuple[bytes, ...]) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        for each in parts:
            connection.sendall(each)


@pytest.mark.parametrize(("parts", "complete"), [(ANSWER, True), (ANSWER[:2], False), ((b"HTTP/1.1 429 Too Many\r\n\r\n",), False)])
def test_the_client_counts_complete_streams_and_refuses_others(bench: ModuleType, parts: tuple[bytes, ...], complete: bool) -> None:
    client = part(bench, "client")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve_once, args=(listener, parts))
        thread.start()
        port = listener.getsockname()[1]
        if complete:
            found = client.run("127.0.0.1", port, [b"{}"])
            assert (found["events"], found["tokens"]) == (4, 7)
            assert 0 < found["first_s"][0] <= found["seconds"]
        else:
            with pytest.raises(RuntimeError, match="a request failed"):
                client.run("127.0.0.1", port, [b"{}"])
        thread.join(10)


def test_a_page_takes_its_tables_from_the_newest_dated_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    tables = importlib.import_module("tables")
    machine = {"cpu": "a cpu", "cores": 2, "isa": "avx2", "memory_gib": 4}
    for date in ("2025-01-02", "2026-01-01"):
        kept = {
            "machine": machine,
            "load_before": 0,
            "at": date,
            "versions": {"peer": "1.0"},
            "table": "whole",
            "tables": {"speed": f"of {date}"},
        }
        (tmp_path / f"{date}-peers.json").write_text(json.dumps(kept))
    page = "<!-- peers -->\nold\n<!-- end -->\n<!-- peers: speed -->\n<!-- end -->\n<!-- other -->\n<!-- end -->"
    filled = tables.filled(page, tmp_path)
    assert "old" not in filled
    assert "2026-01-01; peer: 1.0.\n\nwhole\n<!-- end -->" in filled
    assert "of 2026-01-01\n<!-- end -->" in filled
    assert "of 2025-01-02" not in filled
    assert "`python bench/other.py`" in filled
