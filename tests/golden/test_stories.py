"""A real trained model, small enough for every test run: the published greedy text of stories260K, in float32."""

from __future__ import annotations

from pathlib import Path

import pytest

import stories260k
from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.formats.open import open_model
from camshaft.runners.cpu import CpuRunner
from drive import Ask, generate
from shared_data import shared_data_or_skip

BOS = 1
N_TOKENS = 256


def published_text(readme: Path) -> str:
    """What stands after the first `run -t 0.0` command, up to the end of the code block."""
    return readme.read_text(encoding="utf-8").partition("-t 0.0\n")[2].partition("\n```")[0]


@pytest.mark.parametrize("isa", ["ref", "avx2", "avx512"])
def test_float32_reproduces_the_published_greedy_text(tmp_path: Path, isa: str) -> None:
    folder = shared_data_or_skip() / "models" / "stories260K"
    if isa not in _native.available_isas():
        pytest.skip(f"instruction set {isa} is not on this machine")
    model = open_model(stories260k.convert(folder, tmp_path / "stories260K.gguf"))
    runner = CpuRunner(model, EngineConfig(compute="f32", kv_dtype="f32", kv_memory="16M"), isa=isa)
    (ids,) = generate(runner, [Ask([BOS])], N_TOKENS)
    assert model.vocab is not None
    text = "".join(piece(model.vocab.tokens[id]) for id in ids).lstrip(" ")
    want = published_text(folder / "README-upstream.md")
    assert len(want) == 565
    assert text[: len(want)] == want


def piece(token: str) -> str:
    """SentencePiece's spelling of a token as text: bytes are <0x0A>, a space is a low bar."""
    return chr(int(token[3:5], 16)) if token.startswith("<0x") else token.replace("▁", " ")
