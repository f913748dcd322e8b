"""Perplexity of the catalogue's models on WikiText-2, beside transformers in float32 on the dequantised weights.

    python bench/perplexity.py --text wikitext2_valid.txt [--tokens 16384]

The first 16,384 tokens in windows of 512, each on its own. SmolLM2 without a first token, Gemma with BOS before each window. The corpus
writes <unk> for rare words, which transformers reads as the special token where a vocabulary has one; so does this script.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import NamedTuple

import harness

from camshaft.bench.perplexity import perplexity
from camshaft.config import EngineConfig
from camshaft.formats.open import open_model
from camshaft.formats.source import resolve
from camshaft.runners.cpu import CpuRunner
from camshaft.tokenizer.tokenizer import Tokenizer

N_TOKENS = 16_384


class Case(NamedTuple):
    model: str
    with_bos: bool
    compute: str
    kv_dtype: str
    reference: float  # transformers, float32
    tolerance: float  # relative


CASES = (
    Case("smollm2-135m", False, "int8", "bf16", 18.72, 0.01),
    Case("smollm2-135m", False, "int8", "int8", 18.72, 0.01),
    Case("smollm2-135m", False, "f32", "f32", 18.72, 0.001),
    Case("gemma3-270m", True, "int8", "bf16", 33.28, 0.01),
)


class Measured(NamedTuple):
    perplexity: float
    n_scored: int
    seconds: float


def measure(case: Case, text: str, n_tokens: int) -> Measured:
    path = resolve(case.model)
    tokenizer = Tokenizer.from_file(path)
    known = tokenizer.special_id("<unk>") is not None
    pieces = re.split("(<unk>)", text[: 20 * n_tokens])
    ids = tokenizer.encode_parts((piece, known and piece == "<unk>") for piece in pieces)[:n_tokens]
    runner = CpuRunner(open_model(path), EngineConfig(compute=case.compute, kv_dtype=case.kv_dtype, kv_memory="256M"))
    began = time.perf_counter()
    found = perplexity(runner, ids, bos_id=tokenizer.bos_id if case.with_bos else None)
    runner.close()
    return Measured(found.value, found.n_scored, time.perf_counter() - began)


def main() -> int:
    parser = harness.parser(__doc__, "perplexity")
    parser.add_argument("--text", type=Path, required=True, help="WikiText-2's validation text, tokenised as published")
    parser.add_argument("--tokens", type=int, default=N_TOKENS, help="the references hold for the default alone")
    args = parser.parse_args()
    text = args.text.read_text(encoding="utf-8")
    cases = [case for case in CASES if args.model in ("", case.model)]
    lines, figures = [], {}
    for case in cases:
        got = measure(case, text, args.tokens)
        name = f"{case.model}, {case.compute}, KV {case.kv_dtype}"
        off = got.perplexity / case.reference - 1
        comparable = args.tokens == N_TOKENS
        bar = f"{case.reference} within {100 * case.tolerance:g} %" if comparable else ""
        held = abs(off) <= case.tolerance if comparable else None
        figure = f"{got.perplexity:.4f}" + (f" ({100 * off:+.3f} %)" if comparable else "")
        lines.append(harness.Line(name, figure, bar, held))
        figures[name] = got._asdict()
    return harness.finish(args.out, harness.verdicts(lines), {"n_tokens": args.tokens, "figures": figures}, lines)


if __name__ == "__main__":
    sys.exit(main())
