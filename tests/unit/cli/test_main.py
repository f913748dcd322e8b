"""The command line: what is understood, what is refused, and how failures look."""

from __future__ import annotations

import pytest

from camshaft.cli.main import COMMANDS, main, parse


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
    "line", ["run question --rawww", "chat one two", "list extra", "serve --prot 1", "pull a b", "", "run q --max-tok 5"]
)
def test_what_is_not_understood_is_wrong_usage(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2
    assert "usage: camshaft" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("run", "nothing was asked"),
        ("run a b c", "put the question in quotes"),
        ("inspect /nowhere.gguf", "no model '/nowhere.gguf'"),
        ("pull smolm2-135m", "did you mean 'smollm2-135m'?"),
        ("serve --port 70000", "--port must lie between 0 and 65535"),
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
    assert capsys.readouterr().err == "error: --max-num-seqs takes a value of type int, not 'many'\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.name)
def test_every_command_has_help_with_examples(command, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert command.examples
    for example in command.examples:
        assert example in shown
