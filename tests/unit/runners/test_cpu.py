"""The CPU runner: what it says about itself, what it refuses, and that no sequence sees another's KV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from camshaft import _native
from camshaft.config import EngineConfig
from camshaft.errors import ConfigError, EngineFault, ModelError
from camshaft.formats.model import ModelFile
from camshaft.formats.open import open_model
from camshaft.runners.cpu import CpuRunner
from camshaft.runners.weights import Weights
from camshaft.types import BlockCopy, Row, Runner, SamplingParams, StepPlan, TablePatch
from drive import Ask, Blocks, Driven, generate, run_alone, step
from gguf_writer import VOCAB_SIZE, Tiny, gguf_bytes, tiny_metadata, tiny_model, tiny_tensors

CONFIG = EngineConfig(block_size=16, kv_memory="1M", threads=1, max_num_seqs=4, max_num_batched_tokens=64)
PROMPT = [5, 9, 200, 31, 7, 77, 150, 12, 3, 90, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70]
GREEDY = SamplingParams(temperature=0.0, seed=0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelFile:
    return open_model(tiny_model(tmp_path_factory.mktemp("model") / "m.gguf", Tiny(weights="Q4_1", tied=False)))


@pytest.fixture(scope="module")
def runner(model: ModelFile) -> CpuRunner:
    return CpuRunner(model, CONFIG)


def test_it_is_a_runner_that_promises_invariance(runner: CpuRunner) -> None:
    as_runner: Runner = runner
    assert as_runner.invariant
    assert len(as_runner.numerics_id) == 16


def test_capacity_and_the_report_of_loading_agree_with_the_settings(runner: CpuRunner, model: ModelFile) -> None:
    capacity, loaded = runner.capacity(), runner.loaded
    assert (capacity.vocab_size, capacity.max_model_len, capacity.max_slots) == (VOCAB_SIZE, 512, 4)
    assert loaded.kv_bytes <= 1 << 20
    assert loaded.forms == {"q4": 2 + 2 * 7}  # embedding, head, and seven matrices a layer
    assert loaded.tensor_bytes == model.tensor_bytes
    assert loaded.resident_bytes > loaded.packed_bytes + loaded.kv_bytes
    assert (loaded.threads, loaded.isa) == (1, loaded.isa)


def test_a_tied_head_is_packed_once(tmp_path: Path) -> None:
    tied = CpuRunner(open_model(tiny_model(tmp_path / "m.gguf", Tiny(weights="Q4_1", tied=True))), CONFIG)
    assert tied.loaded.forms == {"q4": 1 + 2 * 7}


def test_float_weights_are_packed_when_asked_and_the_embedding_never_below_8_bits(tmp_path: Path) -> None:
    model = open_model(tiny_model(tmp_path / "m.gguf", Tiny(weights="BF16", tied=False)))
    assert CpuRunner(model, CONFIG).loaded.forms == {"bf16": 16}
    assert CpuRunner(model, replace(CONFIG, quantize="q8")).loaded.forms == {"q8": 16}
    assert CpuRunner(model, replace(CONFIG, quantize="q4")).loaded.forms == {"q8": 2, "q4": 14}


def test_the_numerics_id_is_the_same_for_one_file_and_settings_and_differs_for_another_file(
    runner: CpuRunner, model: ModelFile, tmp_path: Path
) -> None:
    assert CpuRunner(model, replace(CONFIG, threads=2, block_size=32)).numerics_id == runner.numerics_id
    other = open_model(tiny_model(tmp_path / "m.gguf", Tiny(weights="Q4_1", tied=False, seed=1)))
    assert CpuRunner(other, CONFIG).numerics_id != runner.numerics_id
    assert CpuRunner(model, replace(CONFIG, kv_dtype="f32")).numerics_id != runner.numerics_id


def test_an_instruction_set_that_is_not_here_is_named(model: ModelFile, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"'mmx' is not on this machine .* CAMSHAFT_ISA may be .*ref"):
        CpuRunner(model, CONFIG, isa="mmx")
    monkeypatch.setenv("CAMSHAFT_ISA", "ref")
    assert CpuRunner(model, CONFIG).loaded.isa == "ref"


def test_a_closed_runner_says_so(model: ModelFile) -> None:
    runner = CpuRunner(model, CONFIG)
    runner.close()
    runner.close()
    with pytest.raises(EngineFault, match="the runner is closed"):
        runner.step(StepPlan(()), {})


def test_a_tensor_of_another_shape_than_the_network_needs_is_named(model: ModelFile) -> None:
    builder = _native.Builder(isa="ref", threads=1, compute="int8", max_tokens=8, max_slots=1, vocab_size=VOCAB_SIZE)
    weights = Weights(model, builder, "none", 16)
    with pytest.raises(ModelError, match=r"tensor layers.0.q is \[64, 64\], but the network needs \[64, 32\]"):
        weights.matrix("layers.0.q", 64, 32)
    with pytest.raises(ModelError, match=r"tensor final_norm is \[64\], but the network needs \[65\]"):
        weights.vector("final_norm", 65)


def test_a_sampled_id_is_the_likeliest_of_the_rows_own_logits(runner: CpuRunner) -> None:
    logits = run_alone(runner, PROMPT, 64)
    assert generate(runner, [Ask(PROMPT)], 1) == [[int(logits[-1].argmax())]]


def test_log_probabilities_come_from_the_raw_distribution(runner: CpuRunner) -> None:
    logits = run_alone(runner, PROMPT, 64).astype(np.float64)
    want = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    runner.open(0, SamplingParams(temperature=0.0, seed=0, logprobs=2, prompt_logprobs=1, logit_bias=((8, 50.0),)), 0, PROMPT, ())
    row = Row(0, 0, tuple(PROMPT), 1, (TablePatch(0, 0, (1, 2)),), score=True)
    (result,) = runner.step(StepPlan((row,)), {}).rows
    runner.release(0)
    assert result.ids == (8,)  # biased, but its log-probability is not
    assert result.logprobs[0].logprob == pytest.approx(want[-1, 8], abs=1e-4)
    assert [id for id, _ in result.logprobs[0].top] == np.argsort(-want[-1], kind="stable")[:2].tolist()
    assert [score.id for score in result.scores] == PROMPT[1:]
    np.testing.assert_allclose([score.logprob for score in result.scores], [want[i, id] for i, id in enumerate(PROMPT[1:])], atol=1e-4)
    assert all(len(score.top) == 1 for score in result.scores)


def test_a_chunk_that_does_not_end_the_prompt_samples_nothing(runner: CpuRunner) -> None:
    runner.open(0, GREEDY, 0, PROMPT, ())
    (result,) = runner.step(StepPlan((Row(0, 0, tuple(PROMPT[:5]), 0, (TablePatch(0, 0, (1,)),)),)), {}).rows
    runner.release(0)
    assert result.ids == result.logprobs == result.scores == ()


def test_a_mask_allows_only_its_tokens(runner: CpuRunner) -> None:
    mask = bytearray(4 * -(-VOCAB_SIZE // 32))
    mask[77 // 8] |= 1 << 77 % 8
    runner.open(0, GREEDY, 0, PROMPT, ())
    (result,) = runner.step(StepPlan((Row(0, 0, tuple(PROMPT), 1, (TablePatch(0, 0, (1, 2)),)),)), {0: mask}).rows
    runner.release(0)
    assert result.ids == (77,)


def test_a_copied_block_is_written_without_touching_its_source(runner: CpuRunner) -> None:
    """The write half of copy on write: two sequences share a half-full block, one of them goes on in a copy."""
    ids, other = PROMPT, [*PROMPT[:18], 100, 101]
    want, want_other = run_alone(runner, ids, 64), run_alone(runner, other, 64)
    blocks = Blocks(runner.capacity())
    first = Driven(runner, 0, ids, blocks)
    step(runner, [(first, 18)])
    copy = blocks.take(1)[0]
    runner.open(1, GREEDY, 0, other, ())
    row = Row(1, 18, tuple(other[18:]), 1, (TablePatch(0, 0, (first.tables[0][0], copy)),))
    runner.step(StepPlan((row,), (BlockCopy(first.tables[0][1], copy),)), {})
    np.testing.assert_array_equal(runner.program.last_logits()[-1], want_other[-1])
    step(runner, [(first, 2)])
    np.testing.assert_array_equal(first.logits, want)
    runner.release(0)
    runner.release(1)


def test_a_new_sequence_in_used_slots_and_blocks_sees_nothing_of_the_old_one(runner: CpuRunner) -> None:
    """Canaries: every block is filled by one sequence, then a shorter one runs in the same slot and blocks."""
    want = run_alone(runner, PROMPT, 64)
    run_alone(runner, [*range(VOCAB_SIZE), *PROMPT * 10], 64)
    np.testing.assert_array_equal(run_alone(runner, PROMPT, 64), want)


def test_a_row_whose_logits_are_not_finite_fails_alone(tmp_path: Path) -> None:
    tensors = tiny_tensors(Tiny())
    embed = tensors["token_embd.weight"]
    assert isinstance(embed, np.ndarray)
    embed[250] = np.nan  # as an input this token ruins its own sequence; the head is another matrix
    tensors["output.weight"] = tiny_tensors(Tiny(seed=3))["token_embd.weight"]
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(tiny_metadata(Tiny()), tensors))
    runner = CpuRunner(open_model(path), CONFIG)
    runner.open(0, GREEDY, 0, [5, 250], ())
    runner.open(1, GREEDY, 0, [5, 6], ())
    rows = (Row(0, 0, (5, 250), 1, (TablePatch(0, 0, (1,)),)), Row(1, 0, (5, 6), 1, (TablePatch(0, 0, (2,)),)))
    bad, good = runner.step(StepPlan(rows), {}).rows
    assert bad.ids == (-1,)
    assert 0 <= good.ids[0] < VOCAB_SIZE


def test_an_inconsistent_plan_is_refused_and_the_runner_goes_on(runner: CpuRunner) -> None:
    want = generate(runner, [Ask(PROMPT)], 3)
    runner.open(0, GREEDY, 0, PROMPT, ())
    for row in (
        Row(0, 0, tuple(PROMPT), 1),  # no blocks
        Row(0, 0, (VOCAB_SIZE,), 1, (TablePatch(0, 0, (1,)),)),
        Row(0, 40, (5,), 1, (TablePatch(0, 0, (1,)),)),  # a gap
        Row(3, 0, (5,), 1, (TablePatch(0, 0, (1,)),)),  # not open
        Row(0, 0, (5,), 1, (TablePatch(0, 0, (10**6,)),)),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            runner.step(StepPlan((row,)), {})
    runner.release(0)
    assert generate(runner, [Ask(PROMPT)], 3) == want


SEEDED = SamplingParams(temperature=0.9, top_p=0.95, top_k=50, repetition_penalty=1.1, presence_penalty=0.3, seed=7)


def test_a_seeded_request_draws_the_same_beside_any_batch_mate(runner: CpuRunner) -> None:
    mates = [Ask(PROMPT[:9], SamplingParams(seed=1)), Ask(PROMPT[3:], msgspec.structs.replace(SEEDED, logit_bias=((9, 100.0),)))]
    (alone,) = generate(runner, [Ask(PROMPT, SEEDED)], 20)
    assert generate(runner, [*mates, Ask(PROMPT, SEEDED)], 20)[2] == alone
    assert generate(runner, [Ask(PROMPT, msgspec.structs.replace(SEEDED, logprobs=3)), *mates], 20)[0] == alone


def test_choices_of_one_seed_differ(runner: CpuRunner) -> None:
    drawn = generate(runner, [Ask(PROMPT, SEEDED, choice) for choice in range(3)], 20)
    assert len({tuple(ids) for ids in drawn}) == 3


def test_a_stream_resumed_elsewhere_goes_on_as_it_would_have(runner: CpuRunner, model: ModelFile) -> None:
    (whole,) = generate(runner, [Ask(PROMPT, SEEDED)], 20)
    other = CpuRunner(model, replace(CONFIG, threads=2, block_size=32))
    assert generate(other, [Ask(PROMPT, SEEDED, 0, whole[:8])], 12) == [whole[8:]]


def test_one_rows_bias_does_not_touch_its_neighbours(runner: CpuRunner) -> None:
    biased = SamplingParams(temperature=0.0, seed=0, logit_bias=((77, 100.0),))
    plain, forced, after = generate(runner, [Ask(PROMPT), Ask(PROMPT, biased), Ask(PROMPT)], 5)
    assert forced == [77] * 5
    assert plain == after == generate(runner, [Ask(PROMPT)], 5)[0]
