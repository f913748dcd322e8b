"""An inconsistent batch is refused with a line that names the cause, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from camshaft._native import Builder, Program
from native_tiny import F32, GREEDY, RowIn, Setup, Shape, TinyLlama, open_slot, run, table_patch

PROMPT = list(range(40))
BLOCKS = [[1, 2, 3], [4, 5, 6]]
VOCAB = Shape().vocab


@pytest.fixture
def program() -> Program:
    """Slot 0 has computed 20 of its 40 tokens, slot 1 is open, the others are not."""
    p = TinyLlama().build(Setup(max_tokens=64, max_slots=4, n_blocks=20))
    p.keep_logits(True)
    open_slot(p, 0, PROMPT)
    open_slot(p, 1, PROMPT)
    run(p, [RowIn(0, 0, PROMPT[:20])], patches=table_patch(0, BLOCKS))
    return p


def next_logits(p: Program) -> bytes:
    run(p, [RowIn(0, 20, PROMPT[20:40], n_sample=20)])
    return p.last_logits().tobytes()


REFUSED: dict[str, tuple[Callable[[Program], object], str]] = {
    "an unknown slot": (lambda p: run(p, [RowIn(4, 0, [1])]), "slot 4 is outside 0..3"),
    "a negative slot": (lambda p: run(p, [RowIn(-1, 0, [1])]), "slot -1"),
    "a closed slot": (lambda p: run(p, [RowIn(2, 0, [1])]), "slot 2 is not open"),
    "a slot twice": (lambda p: run(p, [RowIn(0, 20, [1]), RowIn(0, 21, [1])]), "twice"),
    "an empty row": (lambda p: run(p, [RowIn(0, 20, [])]), "n_new is 0"),
    "a gap": (lambda p: run(p, [RowIn(0, 41, [1])]), "starts at position 41, but slot 0 knows 40"),
    "a negative start": (lambda p: run(p, [RowIn(0, -1, [1])]), "position -1"),
    "a position past the last": (lambda p: past_the_end(p), "past the last one, 255"),
    "more samples than tokens": (lambda p: run(p, [RowIn(0, 20, [1], n_sample=2)]), "n_sample is 2 of 1"),
    "an id outside the vocabulary": (lambda p: run(p, [RowIn(0, 20, [VOCAB])]), f"token id {VOCAB} is outside"),
    "a negative id": (lambda p: run(p, [RowIn(0, 20, [-1])]), "token id -1"),
    "too many tokens": (lambda p: run(p, [RowIn(0, 0, PROMPT), RowIn(1, 0, PROMPT)]), "80 tokens, the program takes 64"),
    "rows that do not add up": (
        lambda p: p.run(np.zeros(3, np.int32), rows([0, 20, 2, 0, 0]), none(), none(2), {}),
        "hold 2 tokens, but there are 3",
    ),
    "a score that is no flag": (lambda p: p.run(np.zeros(1, np.int32), rows([0, 20, 1, 0, 7]), none(), none(2), {}), "score is 7"),
    "a table too short": (lambda p: run(p, [RowIn(1, 0, [1])]), "no block in group 0"),
    "a block that is gone": (
        lambda p: run(p, [RowIn(0, 20, [1])], patches=[0, 0, 0, 1, 0]),
        "positions from 0 on have no block in group 0",
    ),
    "a block of another row": (
        lambda p: run(p, [RowIn(0, 20, [1]), RowIn(1, 0, [1])], patches=table_patch(1, [[2], [7]])),
        "block 2 is written by another row",
    ),
    "a patch for a closed slot": (lambda p: run(p, [], patches=[3, 0, 0, 1, 1]), "slot 3, which is not open"),
    "a patch for an unknown group": (lambda p: run(p, [], patches=[0, 2, 0, 1, 1]), "group 2 of 2"),
    "a patch far away": (lambda p: run(p, [], patches=[0, 0, 16, 1, 1]), "ends at entry 17, a sequence has at most 16"),
    "a patch before the table": (lambda p: run(p, [], patches=[0, 0, -1, 1, 1]), "entry 0"),
    "a block outside the pool": (lambda p: run(p, [], patches=[0, 0, 0, 1, 20]), "block 20 is outside 0..19"),
    "a truncated patch": (lambda p: run(p, [], patches=[0, 0, 0, 2, 1]), "end in the middle"),
    "a patch of negative length": (lambda p: run(p, [], patches=[0, 0, 0, -1]), "end in the middle"),
    "a copy of block 0": (lambda p: run(p, [], copies=[(0, 3)]), "block copy 0 -> 3"),
    "a copy outside the pool": (lambda p: run(p, [], copies=[(3, 20)]), "block copy 3 -> 20"),
    "a mask for nobody": (lambda p: run(p, [RowIn(0, 20, [1])], masks={1: bytes(16)}), "slot 1, which has no row"),
    "a mask of the wrong size": (lambda p: run(p, [RowIn(0, 20, [1])], masks={0: bytes(12)}), "has 3 words, 4 are needed"),
    "a mask of odd bytes": (lambda p: run(p, [RowIn(0, 20, [1])], masks={0: bytes(15)}), "32-bit words"),
    "rows of the wrong width": (lambda p: p.run(np.zeros(1, np.int32), np.zeros((1, 4), np.int32), none(), none(2), {}), "5 columns"),
    "a prompt outside the vocabulary": (lambda p: open_slot(p, 2, [VOCAB]), f"prompt id {VOCAB}"),
    "an output outside the vocabulary": (lambda p: open_slot(p, 2, [1], output=[-5]), "output id -5"),
    "a slot that cannot be opened": (lambda p: open_slot(p, 9, [1]), "slot 9 is outside 0..3"),
}


def rows(*table: list[int]) -> np.ndarray:
    return np.array(table, np.int32)


def none(columns: int = 0) -> np.ndarray:
    return np.empty((0, columns) if columns else 0, np.int32)


def past_the_end(p: Program) -> None:
    p.release(1)
    open_slot(p, 1, [i % VOCAB for i in range(300)])
    run(p, [RowIn(1, 250, [1] * 7)])


@pytest.mark.parametrize("what", REFUSED)
def test_refused_before_anything_changes(program: Program, what: str) -> None:
    act, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        act(program)
    undisturbed = TinyLlama().build(Setup(max_tokens=64, max_slots=4, n_blocks=20))
    undisturbed.keep_logits(True)
    open_slot(undisturbed, 0, PROMPT)
    run(undisturbed, [RowIn(0, 0, PROMPT[:20])], patches=table_patch(0, BLOCKS))
    assert next_logits(program) == next_logits(undisturbed)


def test_a_refused_patch_leaves_the_table_as_it_was(program: Program) -> None:
    with pytest.raises(ValueError, match="no block"):
        run(program, [RowIn(0, 20, [1]), RowIn(1, 0, [1])], patches=[0, 0, 0, 4, 9, 9, 9, 9])
    run(program, [RowIn(0, 20, PROMPT[20:40])])  # with the old table: block 9 was never the row's


def test_an_empty_step_is_allowed(program: Program) -> None:
    assert run(program, []) == []
    assert program.last_logits().shape == (0, VOCAB)


def test_arrays_of_another_type_are_not_converted_in_silence(program: Program) -> None:
    with pytest.raises(TypeError):
        program.run(np.zeros(1, np.int64), rows([0, 20, 1, 0, 0]), none(), none(2), {})  # type: ignore[arg-type]


def test_release_is_idempotent_and_reopening_forgets_the_table(program: Program) -> None:
    program.release(0)
    program.release(0)
    program.release(99)
    open_slot(program, 0, PROMPT)
    with pytest.raises(ValueError, match="no block"):
        run(program, [RowIn(0, 0, [1])])


# ------------------------------------------------------------------------------------------------------ the builder


def builder(**changes: object) -> Builder:
    return Builder(**{"isa": "", "threads": 1, "compute": "f32", "max_tokens": 8, "max_slots": 2, "vocab_size": 32, **changes})  # type: ignore[arg-type]


def matrix(b: Builder, rows: int, cols: int) -> int:
    return b.weight(F32, rows, cols, np.zeros((rows, cols), np.float32))


BUILDS: dict[str, tuple[Callable[[Builder], object], str]] = {
    "an unknown tensor type": (lambda b: b.weight(99, 1, 32, bytes(128)), "tensor type 99"),
    "partial rows": (lambda b: b.weight(F32, 2, 32, bytes(250)), "not whole rows of 128"),
    "missing rows": (lambda b: b.weight(F32, 3, 32, bytes(256)), "has 2 rows, 3 were announced"),
    "a row order outside": (lambda b: b.weight(F32, 2, 32, bytes(256), np.array([0, 2], np.int32)), "row 2 of 2"),
    "an unknown form": (lambda b: b.weight(F32, 2, 32, bytes(256), None, "q3"), "'q3' is unknown"),
    "an unknown buffer": (lambda b: b.rms_norm(0, 0, 0, 1e-5), "buffer 0 does not exist"),
    "a vector of another length": (
        lambda b: b.rms_norm(b.buffer(8), 0, b.vector(np.ones(7, np.float32)), 1e-5),
        "7 elements, 8 are needed",
    ),
    "columns outside": (lambda b: b.silu_mul(b.buffer(8), b.buffer(8), 0, 4, 8), "do not fit buffer 1 of width 8"),
    "a linear into itself": (lambda b: b.linear(b.buffer(8), [(matrix(b, 8, 8), -1, 0, 0)], False), "its own input"),
    "a linear of another width": (
        lambda b: b.linear(b.buffer(8), [(matrix(b, 8, 16), -1, b.buffer(8), 0)], False),
        "16 columns, its input is 8 wide",
    ),
    "attention without a cache": (
        lambda b: b.attention(b.buffer(8), 0, 0, 0, 0, 0, group=0, layer=0, n_heads=1, window=0, scale=1.0, softcap=0.0),
        "KV cache before attention",
    ),
    "a block size that no kernel has": (
        lambda b: b.kv_cache(block_size=24, n_blocks=4, dtype="f32", n_layers_per_block=1, n_groups=1, n_kv_heads=1, head_dim=8),
        "block_size 24",
    ),
    "an unknown KV type": (
        lambda b: b.kv_cache(block_size=16, n_blocks=4, dtype="fp8", n_layers_per_block=1, n_groups=1, n_kv_heads=1, head_dim=8),
        "'fp8'",
    ),
    "a head before take_rows": (lambda b: b.head(b.buffer(8), matrix(b, 32, 8), 0.0), "after take_rows"),
    "rows taken again from what was taken": (lambda b: take_again(b, between=False), "holds taken rows already"),
    "rows taken in two places": (lambda b: take_again(b, between=True), "one place"),
    "no head": (lambda b: b.build(), "ends with a head"),
}


def take_again(b: Builder, *, between: bool) -> None:
    x, taken = b.buffer(8), b.buffer(8)
    b.take_rows(taken, x)
    if between:
        b.add(taken, taken, taken)
    b.take_rows(b.buffer(8), taken)


@pytest.mark.parametrize("what", BUILDS)
def test_a_wrong_network_is_refused_where_it_is_built(what: str) -> None:
    act, message = BUILDS[what]
    with pytest.raises(ValueError, match=message):
        act(builder())


@pytest.mark.parametrize(
    ("changes", "message"), [({"isa": "mmx"}, "'mmx' is not available"), ({"compute": "f64"}, "'f64'"), ({"max_slots": 0}, "at least 1")]
)
def test_wrong_options_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        builder(**changes)


def test_a_builder_is_spent_after_build() -> None:
    b = builder(max_tokens=2)
    x, taken, w = b.buffer(8), b.buffer(8), matrix(b, 32, 8)
    b.embed(x, w, 1.0)
    b.take_rows(taken, x)
    b.head(taken, w, 0.0)
    program = b.build()
    program.open(0, GREEDY, 0, np.zeros(1, np.int32), np.empty(0, np.int32))
    assert run(program, [RowIn(0, 0, [3], n_sample=1)]) == [([0], [], [])]
    with pytest.raises(ValueError, match="spent"):
        b.buffer(8)
