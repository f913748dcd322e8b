"""Replays the arrivals of a recorded conversation trace through the real KV manager and compares eviction policies by hit rate.

    python bench/evict_trace.py [--trace conversation_trace.jsonl] [--blocks 5000 10000 20000]

The trace names 512-token blocks by hash; each becomes one token in a pool of one-token blocks, so that the tree, the pool and the policy
are those of the engine. A request is admitted, computed and let go at its arrival: measured is the order of eviction and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from camshaft.kv.evict import make_evictor
from camshaft.kv.manager import Claim, KVManager
from camshaft.types import Capacity, KVGroup

POLICIES = ("lru", "retention")
BLOCK_TOKENS = 512


class Arrival(NamedTuple):
    at_s: float
    blocks: tuple[int, ...]


class Outcome(NamedTuple):
    """Shares of the blocks looked up."""

    hit_rate: float
    evicted: dict[str, int]
    seconds: float


def read_trace(path: Path) -> list[Arrival]:
    with path.open() as lines:
        records = [json.loads(line) for line in lines]
    return [Arrival(r["timestamp"] / 1000, tuple(r["hash_ids"])) for r in records]


def replay(arrivals: Iterable[Arrival], policy: str, n_blocks: int) -> Outcome:
    """The hit rate of one policy in a pool of `n_blocks`."""
    capacity = Capacity(1 << 30, 1 << 30, 1, n_blocks + 1, (KVGroup(1),), 1, 1)
    kv = KVManager(capacity, make_evictor(policy))
    began = time.perf_counter()
    n_hit = n_asked = 0
    for at_s, blocks in arrivals:
        n_asked += len(blocks)
        # The last token of a prompt is computed even on a full hit: one more stands for the turn's own words.
        ids: Sequence[int] = (*blocks, -1)
        grant = kv.admit(Claim(ids, len(ids)), at_s)
        if grant is None:
            continue
        n_hit += grant.n_computed
        kv.commit(grant.table, ids, len(blocks), at_s)
        kv.release(grant.table, at_s)
    kv.check(())
    return Outcome(n_hit / max(1, n_asked), kv.pool.evicted, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, required=True, help="JSON lines with timestamp (ms) and hash_ids")
    parser.add_argument("--blocks", type=int, nargs="+", default=[2_000, 5_000, 10_000, 20_000, 40_000])
    args = parser.parse_args()
    arrivals = read_trace(args.trace)
    sys.stdout.write(f"{'blocks':>8} " + " ".join(f"{p:>10}" for p in POLICIES) + "\n")
    for n_blocks in args.blocks:
        outcomes = [replay(arrivals, policy, n_blocks) for policy in POLICIES]
        sys.stdout.write(f"{n_blocks:>8} " + " ".join(f"{o.hit_rate:>10.4f}" for o in outcomes) + f"  {outcomes[-1].evicted}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
