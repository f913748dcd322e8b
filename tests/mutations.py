"""Files injured at random, and a bound on what opening one may cost."""

from __future__ import annotations

import random
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

from camshaft.errors import ModelError

MOST_SECONDS = 1.0
MOST_BYTES = 200_000_000
LENGTHS = (
    0,
    1,
    2,
    31,
    255,
    65_535,
    65_537,
    1 << 20,
    1 << 24,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)


def mutate(data: bytes, rng: random.Random, head: int) -> bytes:
    """One to four injuries, most of them to the first `head` bytes, which say what the rest means."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(min(head if rng.random() < 0.95 else len(out), len(out)) or 1)
        kind = rng.randrange(7)
        if kind == 0:
            out[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1 and at < len(out):
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            out[at : at + 8] = rng.choice(LENGTHS).to_bytes(8, "little")
        elif kind == 3:
            out[at : at + 4] = (rng.choice(LENGTHS) & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind == 4:
            del out[rng.randrange(len(out) + 1) :]
        elif kind == 5:
            del out[at : at + rng.randrange(1, 64)]
        else:
            out[at:at] = out[at : at + rng.randrange(1, 64)]
    return bytes(out)


def attack(data: bytes, path: Path, use: Callable[[Path], object], *, n: int, head: int, seed: int) -> int:
    """Opens n mutations, with their cost bounded one by one. Returns how many loaded in spite of it."""
    rng = random.Random(seed)
    n_loaded = 0
    tracemalloc.start()
    try:
        for index in range(n):
            path.write_bytes(mutate(data, rng, head))
            tracemalloc.reset_peak()
            n_lines = 1
            before, started = tracemalloc.get_traced_memory()[0], time.process_time()
            try:
                use(path)
                n_loaded += 1
            except ModelError as error:
                n_lines = error.message.count("\n") + 1
            seconds, peak = time.process_time() - started, tracemalloc.get_traced_memory()[1] - before
            assert n_lines == 1, f"mutation {index} of seed {seed} gives an error of {n_lines} lines"
            assert seconds < MOST_SECONDS, f"mutation {index} of seed {seed} took {seconds:.2f} s"
            assert peak < MOST_BYTES, f"mutation {index} of seed {seed} took {peak:,} bytes"
    finally:
        tracemalloc.stop()
    return n_loaded
