"""Camshaft beside its peers on this machine, in interleaved rounds, and against the machine's own limits: every figure that is promised.

    python bench/peers.py [--rounds 5] [--threads N] [--only WORDS ...] [--peers NAME ...] [--text wikitext2_valid.txt] [--work DIR]

Peers get environments of their own under --work at the first use: llama.cpp's tools, built from the sdist of llama-cpp-python; OpenVINO
GenAI with its continuous-batching pipeline; transformers. One that cannot be installed is reported with the reason. Each peer gets the
file and the settings that suit it best for prefill, for decode and for batches, out of candidates that are timed on this machine at the
first use (CANDIDATES in beside/llama_cpp.py and beside/openvino.py); Camshaft gets the file as shipped, and its defaults. All get the same
lengths and number of threads, random prompts that share nothing, a warm-up, and a process of their own for each measurement.

Generated tok/s of n x (prompt + gen) are n * gen tokens over the whole time from the first prompt to the last token, prefill included, for
everybody. Decode at batch 1 is 128 tokens one by one behind next to no context, prefill not counted. Prefill is a prompt of 512. Our
figures include scheduling, sampling and detokenising; OpenVINO's include scheduling and sampling, transformers' sampling; llama.cpp's
bench tools do none of these.

The roofline (`camshaft bench roofline`) is measured in every round. A line's figure is the median of its values over the rounds.
--only and --peers measure a part again and merge it into the results; a line is judged by the newest run that was asked for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import harness
import msgspec
from beside.lines import Judged, Line, lines
from beside.setup import PEERS, Wanted, install
from beside.sitting import engines, fullest, judged, kept, read, sit
from beside.tasks import MACHINE, OURS, Task, tasks

from camshaft import _native

WORK = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "camshaft" / "peers"
OUT = harness.RESULTS / f"{time.strftime('%Y-%m-%d')}-peers.json"


def chosen(args: argparse.Namespace, avx512: bool) -> tuple[list[Line], list[Task]]:
    """The lines that were asked for and the tasks that they need, without those of peers that were not."""
    wanted = [line for line in lines(avx512) if not args.only or any(word.lower() in line.name.lower() for word in args.only)]
    if not wanted:
        raise SystemExit(f"no line has {' or '.join(args.only)} in its name; --list shows them")
    needed = {task for line in wanted for task in line.tasks}
    sides = (OURS, MACHINE, *args.peers)
    return wanted, [task for task in tasks(avx512) if task.name in needed and task.side in sides]


def report(found: list[Judged]) -> str:
    """The table of lines, and below it what could not be measured, with the reason, lest it be missing in silence."""
    table = harness.table(("measure", "figure", "spread", "bar", "aim", ""), [each.row() for each in found])
    absent = sorted({f"- {reason}" for each in found for reason in each.absent})
    return "\n".join([table, *(["", "Not measured, or not in every round:", "", *absent] if absent else [])])


def arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="(default: 5)")
    parser.add_argument("--threads", type=int, default=_native.usable_cores(), help="for everybody (default: the cores of this machine)")
    parser.add_argument("--only", action="append", default=[], metavar="WORDS", help="lines with these words in their name; repeatable")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=PEERS, help="(default: all)")
    parser.add_argument("--tune", action="store_true", help="find the peers' best settings anew")
    parser.add_argument("--text", type=Path, help="WikiText-2's validation text, for the perplexity of an int8 cache")
    parser.add_argument("--transformers-python", type=Path, help="of an environment that has torch and transformers already")
    parser.add_argument("--work", type=Path, default=WORK, help=f"where peers and their files are kept (default: {WORK})")
    parser.add_argument("--out", type=Path, default=OUT, help="(default: bench/results/DATE-peers.json)")
    parser.add_argument("--list", action="store_true", help="name the lines and end")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    avx512 = "avx512" in _native.available_isas()
    table = lines(avx512)
    if args.list:
        sys.stdout.write("\n".join(line.name for line in table) + "\n")
        return 0
    wanted, needed = chosen(args, avx512)
    setup = install(Wanted(tuple(args.peers), args.threads, args.work, avx512, args.tune, args.text, args.transformers_python))
    partial = bool(args.only) or set(args.peers) != set(PEERS)
    earlier = read(json.loads(args.out.read_text())) if partial and args.out.exists() else []
    sittings = kept([*earlier, sit(setup, needed, args.rounds, wanted)])
    found = [each for each in judged(table, sittings) if any(each.line.name in sitting.lines for sitting in sittings)]
    beside = fullest(sittings)
    figures = {
        "versions": beside.versions,
        "tables": {"engines": engines(beside)},
        "sittings": msgspec.to_builtins(sittings),
    }
    bars = [harness.Line(each.line.name, each.row()[1], each.row()[3], each.held) for each in found]
    return harness.finish(args.out, report(found), figures, bars)


if __name__ == "__main__":
    sys.exit(main())
