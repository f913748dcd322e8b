"""The command line: what is understood, what is refused, and how failures look."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import camshaft
from camshaft.cli import terminal
from camshaft.cli.main import NAMES, find, main, parse
from camshaft.formats import catalogue


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("run question", ["question"]),
        ("run model question --raw", ["model", "question"]),
        ("run model --raw question", ["model", "question"]),
        ("run --temperature 0 model question", ["model", "question"]),
        ("run model --max-tokens 5 -", ["model", "-"]),
    ],
)
def test_words_stand_on_either_side_of_flags(line: str, words: list[str]) -> None:
    assert parse(line.split()).words == words


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run question --rawww", "did you mean '--raw'? (camshaft run --help)"),
        ("chat one two", "unrecognized arguments: two (camshaft chat --help)"),
        ("list extra", "(camshaft list --help)"),
        ("serve --prot 1", "did you mean '--port'?"),
        ("pull a b", "(camshaft pull --help)"),
        ("run q --max-tok 5", "did you mean '--max-tokens'?"),
        ("run q --max_tokens=5", "did you mean '--max-tokens'?"),
        ("run q --seed x", "takes a whole number of 0 or more, not 'x'"),
        ("run q --seed -1", "takes a whole number of 0 or more, not '-1'"),
        ("serv", "'serv' is not a command; did you mean 'serve'? (camshaft --help)"),
        ("ctl foo", "'foo' is not an action; there are status, scale, drain,"),
        ("bench engin", "'engin' is not a bench; did you mean 'engine'? (camshaft bench --help)"),
        ("bench engine --bach 2", "did you mean '--batch'? (camshaft bench engine --help)"),
        ("bench", "required: BENCH"),
    ],
)
def test_what_is_not_understood_is_wrong_usage_in_one_line(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: ")
    assert says in said


def test_the_name_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert "Start here:" in capsys.readouterr().out


def test_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(terminal, "note", full)
    assert main(["list"]) == 1
    assert capsys.readouterr().err == "error: input or output: No space left on device\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run", "nothing was asked"),
        ("run a b c", "put the question in quotes"),
        ("inspect /nowhere.gguf", "no model '/nowhere.gguf'"),
        ("pull smolm2-135m", "did you mean 'smollm2-135m'?"),
        ("serve --port 70000", "--port must lie between 0 and 65535"),
        ("bench serve http://127.0.0.1:1 --requests 2", "none of 2 requests"),
        ("serve --evict fifo", "--evict is one of lru, retention"),
        ("bench serve https://example.invalid", "is not an http:// address"),
        ("bench engine --batch 3x4", "--batch takes NxP+G"),
        ("bench roofline --threads 5000", "--threads must lie between 0 and 1024"),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(line.split()) == 1
    out, err = capsys.readouterr()
    (said,) = err.splitlines()
    assert said.startswith("error: ")
    assert says in said
    assert out == ""


def test_a_setting_from_the_environment_fails_like_one_from_the_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAMSHAFT_MAX_NUM_SEQS", "many")
    assert main(["run", "hello"]) == 1
    assert capsys.readouterr().err == "error: --max-num-seqs takes a whole number, not 'many'\n"


@pytest.mark.parametrize("command", [find(name) for name in NAMES], ids=lambda c: c.name)
def test_every_command_has_help_with_examples(command, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert command.examples
    for example in command.examples:
        assert example in shown


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("serve nowhere --api-keys /nowhere", "--api-keys: cannot read /nowhere: No such file or directory"),
        ("serve nowhere --host 256.1.1.1", "pass an address of this machine"),
    ],
)
def test_what_is_wrong_with_the_address_or_the_keys_is_said_before_a_model_is_loaded(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 1
    assert says in capsys.readouterr().err


def test_pull_replaces_a_file_that_was_damaged_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CAMSHAFT_CACHE", str(tmp_path))
    entry = catalogue.Entry("tiny", "Tiny", "tiny.gguf", 4, hashlib.sha256(b"GGUF").hexdigest(), catalogue.License("MIT", "https://x"), ())
    monkeypatch.setattr(catalogue, "entries", lambda: (entry,))
    path = tmp_path / entry.file

    def pull(held: bytes) -> tuple[str, bool]:
        path.write_bytes(held)
        main(["pull", "tiny"])
        return capsys.readouterr().err, path.exists()

    assert pull(b"GGUF") == ("", True)
    said, kept = pull(b"GGUX")
    assert "has a wrong checksum" in said
    assert not kept, "the catalogue's entry has no parts to fetch it from again"


@pytest.mark.parametrize("wait_s", [0.05, 0.3])
def test_ctrl_c_while_the_program_is_still_loading_says_nothing(wait_s: float) -> None:
    path = str(Path(camshaft.__file__).parents[1])
    program = "from camshaft.cli.entry import main; print(flush=True); main()"
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert child.stdout is not None
    child.stdout.readline()
    time.sleep(wait_s)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=20)
    assert b"Traceback" not in err


def test_a_worker_is_not_for_people_and_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "worker" not in NAMES
    before = signal.getsignal(signal.SIGINT)
    reading, writing = os.pipe()
    os.close(writing)
    with os.fdopen(reading) as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        try:
            assert main(["worker"]) == 1
        finally:
            signal.signal(signal.SIGINT, before)
    assert "camshaft serve" in capsys.readouterr().err
