"""Sampling in a program equals a plain reading of its definition over the raw logits, computed here in numpy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from camshaft._native import Program
from camshaft.types import SamplingParams
from native_tiny import RowIn, Setup, Shape, TinyLlama, open_slot, run, table_patch

VOCAB = Shape().vocab
PROMPT = [int(i) for i in np.random.default_rng(3).integers(0, VOCAB, 12)]
BLOCKS = [[1, 2], [3, 4]]


@pytest.fixture(scope="module")
def program() -> Program:
    p = TinyLlama(seed=5).build(Setup(threads=2, max_slots=40, n_blocks=200))
    p.keep_logits(True)
    return p


def philox_uniform(seed: int, choice: int, position: int) -> float:
    """53 bits of Philox4x32-10, counter (position, choice, 0, 0), key the seed's low and high words."""
    c, k = [position, choice, 0, 0], [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return ((c[0] << 32 | c[1]) >> 11) * 2.0**-53


def changed(
    logits: NDArray[np.float32], p: SamplingParams, prompt: Sequence[int], output: Sequence[int], mask: bytes | None
) -> NDArray[np.float32]:
    x = logits.copy()
    for token, bias in p.logit_bias:
        x[token] += np.float32(bias)
    counts = Counter(output)
    for token in {*prompt, *output}:
        factor = np.float32(p.repetition_penalty)
        x[token] = x[token] / factor if x[token] > 0 else x[token] * factor
        if counts[token]:
            x[token] -= np.float32(p.presence_penalty) + np.float32(p.frequency_penalty) * np.float32(counts[token])
    if mask is not None:
        x[np.unpackbits(np.frombuffer(mask, np.uint8), bitorder="little")[:VOCAB] == 0] = -np.inf
    return x


def expected(
    logits: NDArray[np.float32],
    p: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    *,
    choice: int = 0,
    mask: bytes | None = None,
) -> int:
    x = changed(logits, p, prompt, output, mask)
    if p.temperature == 0:
        return int(x.argmax())
    order = np.lexsort((np.arange(VOCAB), -x))
    weights = np.exp((x[order].astype(np.float64) - x.max()) / p.temperature)
    if p.top_k:
        order, weights = order[: p.top_k], weights[: p.top_k]
    kept = 1 + int(np.searchsorted(weights.cumsum(), p.top_p * weights.sum())) if p.top_p < 1 else len(order)
    kept = min(kept, int((weights >= p.min_p).sum()))
    cumulative = weights[:kept].cumsum()
    assert p.seed is not None
    point = philox_uniform(p.seed, choice, len(prompt) + len(output)) * cumulative[-1]
    return int(order[int(np.searchsorted(cumulative, point, side="right"))])


PARAMS = {
    "greedy": SamplingParams(temperature=0, seed=1),
    "plain": SamplingParams(seed=2),
    "cold": SamplingParams(temperature=0.3, seed=3),
    "top k": SamplingParams(temperature=1.5, top_k=5, seed=4),
    "top p": SamplingParams(temperature=1.5, top_p=0.7, seed=5),
    "min p": SamplingParams(temperature=2.0, min_p=0.1, seed=6),
    "all three": SamplingParams(temperature=2.0, top_k=20, top_p=0.9, min_p=0.05, seed=2**63 + 9),
    "bias": SamplingParams(temperature=0, logit_bias=((7, 100.0), (8, 99.0)), seed=7),
    "ban": SamplingParams(temperature=0, logit_bias=tuple((i, -100.0) for i in range(0, VOCAB, 2)), seed=8),
    "repetition": SamplingParams(temperature=0, repetition_penalty=3.0, seed=9),
    "presence": SamplingParams(temperature=0, presence_penalty=2.0, seed=10),
    "frequency": SamplingParams(temperature=0, frequency_penalty=1.0, seed=11),
    "everything": SamplingParams(
        temperature=1.2,
        top_k=30,
        top_p=0.95,
        min_p=0.01,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=-0.7,
        logit_bias=((3, 2.5),),
        seed=-12,
    ),
}


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("masked", [False, True])
def test_tokens_are_what_the_definition_draws(program: Program, name: str, masked: bool) -> None:
    p, output = PARAMS[name], list[int]()
    rng = np.random.default_rng(0)
    open_slot(program, 0, PROMPT, p, choice=2)
    for step in range(16):
        mask = np.packbits(rng.random(128) < 0.5, bitorder="little").tobytes() if masked else None
        row = RowIn(0, 0, PROMPT, n_sample=1) if step == 0 else RowIn(0, len(PROMPT) + step - 1, output[-1:], n_sample=1)
        ((ids, _, _),) = run(program, [row], patches=table_patch(0, BLOCKS) if step == 0 else (), masks={0: mask} if mask else None)
        assert ids == [expected(program.last_logits()[0], p, PROMPT, output, choice=2, mask=mask)]
        output += ids


def test_a_preempted_sequence_goes_on_where_it_was(program: Program) -> None:
    """Reopened with its output and computed again from the start, in chunks: penalties and randomness see the same history."""
    p = PARAMS["everything"]

    def decode(output: list[int], steps: int, slot: int) -> None:
        for _ in range(steps):
            start = len(PROMPT) + len(output) - 1
            ((ids, _, _),) = run(program, [RowIn(slot, start, output[-1:], n_sample=1)])
            output += ids

    open_slot(program, 0, PROMPT, p)
    ((whole, _, _),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS))
    decode(whole, 12, 0)

    open_slot(program, 0, PROMPT, p)
    ((parted, _, _),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS))
    decode(parted, 5, 0)
    program.release(0)
    known = [*PROMPT, *parted]
    open_slot(program, 1, PROMPT, p, output=parted)
    run(program, [RowIn(1, 0, known[:14])], patches=table_patch(1, BLOCKS))
    ((ids, _, _),) = run(program, [RowIn(1, 14, known[14:], n_sample=1)])
    parted += ids
    decode(parted, 6, 1)
    assert parted == whole


def test_a_rolled_back_token_leaves_no_penalty(program: Program) -> None:
    p = SamplingParams(temperature=0, presence_penalty=50.0, seed=0)
    open_slot(program, 0, PROMPT, p)
    run(program, [RowIn(0, 0, PROMPT)], patches=table_patch(0, BLOCKS))
    for tail in ([5, 6, 7], [5, 9]):
        ((ids, _, _),) = run(program, [RowIn(0, len(PROMPT), tail, n_sample=1)])
        assert ids == [expected(program.last_logits()[0], p, PROMPT, tail)]


def test_several_sampled_positions_each_see_their_own_past_only(program: Program) -> None:
    p, drafts = SamplingParams(temperature=0.8, repetition_penalty=2.0, presence_penalty=1.0, seed=4), [5, 5, 17, 60]
    open_slot(program, 0, PROMPT, p)
    run(program, [RowIn(0, 0, PROMPT)], patches=table_patch(0, BLOCKS))
    ((ids, _, _),) = run(program, [RowIn(0, len(PROMPT), drafts, n_sample=4)])
    logits = program.last_logits()
    assert ids == [expected(logits[i], p, PROMPT, drafts[: i + 1]) for i in range(4)]


def test_ties_go_to_the_lowest_id(program: Program) -> None:
    tie = SamplingParams(temperature=0, logit_bias=tuple((i, 3e38) for i in (40, 11, 90)), seed=0)  # the bias swallows the logit
    open_slot(program, 0, PROMPT, tie)
    ((ids, _, _),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS))
    assert ids == [11]


def test_a_mask_that_allows_nothing_gives_no_token(program: Program) -> None:
    open_slot(program, 0, PROMPT, PARAMS["plain"])
    ((ids, _, _),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS), masks={0: bytes(16)})
    assert ids == [-1]


# ------------------------------------------------------------------------------------------------- log-probabilities


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    x = logits.astype(np.float64)
    return x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))


def test_logprobs_are_of_the_raw_distribution(program: Program) -> None:
    p = SamplingParams(temperature=0.5, logit_bias=((7, 100.0),), logprobs=4, seed=0)
    open_slot(program, 0, PROMPT, p)
    ((ids, logprobs, scores),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS))
    raw = log_softmax(program.last_logits()[0])
    assert ids == [7]
    ((token, value, top),) = logprobs
    assert token == 7
    assert value == pytest.approx(raw[7], abs=1e-5)
    assert [i for i, _ in top] == np.lexsort((np.arange(VOCAB), -raw))[:4].tolist()
    assert [v for _, v in top] == pytest.approx(sorted(raw)[::-1][:4], abs=1e-5)
    assert scores == []


@pytest.mark.parametrize(("k", "n_top"), [(None, None), (0, 0), (3, 3), (1000, VOCAB)])
def test_top_logprobs_as_many_as_asked(program: Program, k: int | None, n_top: int | None) -> None:
    open_slot(program, 0, PROMPT, SamplingParams(temperature=0, logprobs=k, seed=0))
    ((_, logprobs, _),) = run(program, [RowIn(0, 0, PROMPT, n_sample=1)], patches=table_patch(0, BLOCKS))
    assert [len(top) for _, _, top in logprobs] == ([] if n_top is None else [n_top])


@pytest.mark.parametrize("cuts", [[12], [1, 1, 10], [5, 7], [11, 1]])
def test_prompt_scores_do_not_depend_on_chunks(program: Program, cuts: list[int]) -> None:
    open_slot(program, 0, PROMPT, SamplingParams(temperature=0, prompt_logprobs=2, seed=0))
    got, done = [], 0
    for cut in cuts:
        patches = table_patch(0, BLOCKS) if done == 0 else ()
        ((ids, logprobs, scores),) = run(program, [RowIn(0, done, PROMPT[done : done + cut], score=True)], patches=patches)
        assert (ids, logprobs) == ([], [])
        got += scores
        done += cut
    raw = log_softmax(np.asarray(TinyLlama(seed=5).logits(PROMPT), np.float32))
    assert [t for t, _, _ in got] == PROMPT[1:]
    assert [v for _, v, _ in got] == pytest.approx([raw[i, t] for i, t in enumerate(PROMPT[1:])], abs=1e-3)
    assert all(len(top) == 2 and top[0][1] >= top[1][1] for _, _, top in got)


def test_more_rows_than_a_slice_are_each_judged_by_their_own_parameters(program: Program) -> None:
    """37 sampled rows beside 33 scored positions: more than two slices of the head."""
    names = list(PARAMS)
    n = 37
    for slot in range(n):
        open_slot(program, slot, PROMPT[:3], PARAMS[names[slot % len(names)]], choice=slot)
    long = [int(i) for i in np.random.default_rng(9).integers(0, VOCAB, 34)]
    open_slot(program, n, long, SamplingParams(temperature=0, prompt_logprobs=0, seed=0))
    rows = [RowIn(slot, 0, PROMPT[:3], n_sample=1) for slot in range(n)] + [RowIn(n, 0, long, n_sample=1, score=True)]
    patches = [
        w for slot in range(n + 1) for w in table_patch(slot, [[1 + 4 * slot, 2 + 4 * slot, 190], [3 + 4 * slot, 4 + 4 * slot, 191]])
    ]
    results = run(program, rows, patches=patches)
    logits = program.last_logits()
    assert logits.shape == (n + 34, VOCAB)
    for slot in range(n):
        assert results[slot][0] == [expected(logits[slot], PARAMS[names[slot % len(names)]], PROMPT[:3], [], choice=slot)]
    assert results[n][0] == [int(logits[-1].argmax())]
    assert [t for t, _, _ in results[n][2]] == long[1:]
