"""A system prompt of 1,000 tokens that 50 requests share: the time to first token of the first, and of the later ones.

    python bench/hot_prefix.py [--requests 50] [--shared 1000] [--own 20]

The requests come one after the other, so that no queue is measured. Each has words of its own behind the shared ones.
"""

from __future__ import annotations

import random
import statistics
import sys

import harness

from camshaft.bench.sse_client import Target

LARGEST_SHARE = 0.2
LIMIT_S = 600.0


async def measure(target: Target, n: int, n_shared: int, n_own: int) -> dict[str, list[float]]:
    dice = random.Random(11)
    # Another prompt of the same length first: pages and caches are warm, the prefix is not.
    await harness.stream(target, harness.random_ids(dice, n_shared + n_own), 4)
    shared = harness.random_ids(dice, n_shared)
    replies = [await harness.stream(target, [*shared, *harness.random_ids(dice, n_own)], 4) for _ in range(n)]
    cached = [harness.usage(reply)["prompt_tokens_details"]["cached_tokens"] for reply in replies]
    return {"ttft_s": [harness.ttft(reply) for reply in replies], "cached_tokens": cached}


def main() -> int:
    parser = harness.parser(__doc__, "hot_prefix")
    parser.add_argument("--requests", type=int, default=50)
    parser.add_argument("--shared", type=int, default=1000, help="tokens that all requests begin with")
    parser.add_argument("--own", type=int, default=20, help="tokens of each one's own")
    args = parser.parse_args()
    with harness.serving(model=args.model) as server:
        found = harness.run(measure(server.target, args.requests, args.shared, args.own), LIMIT_S)
    first, later = found["ttft_s"][0], found["ttft_s"][1:]
    share = max(later) / first
    lines = [
        harness.Line("TTFT of the first", f"{1000 * first:.0f} ms"),
        harness.Line("TTFT of the later ones, median", f"{1000 * statistics.median(later):.0f} ms"),
        harness.Line("slowest of the later ones, of the first", f"{share:.3f}", f"{LARGEST_SHARE}", share <= LARGEST_SHARE),
        harness.Line("cached tokens of the later ones", f"{min(found['cached_tokens'][1:])} of {args.shared}"),
    ]
    return harness.finish(args.out, harness.verdicts(lines), found, lines)


if __name__ == "__main__":
    sys.exit(main())
