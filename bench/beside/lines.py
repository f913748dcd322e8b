"""The lines that a run must show: what is compared with what, its bar, its aim. Adding a line is adding a row to `lines`.

A line has one value for each round in which all that it needs was measured, so that only what ran within the same minutes is compared.
Its figure is their median. The best peer is the one with the highest median.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beside.setup import LLAMA
from beside.tasks import BATCHES, DECODE, OURS, PREFILL

Rounds = Sequence[Mapping[str, Mapping[str, float]]]  # task -> figure -> value, of each round
Place = tuple[str, str]  # task, figure


class Found(NamedTuple):
    """`beside` says who was the best peer, where that was open."""

    values: list[float]
    beside: str = ""


class Line(NamedTuple):
    """`floor`: the bar is the least that will do; else it is the most. `form` shows a value."""

    name: str
    bar: float
    aim: float
    form: str
    tasks: tuple[str, ...]
    find: Callable[[Rounds], Found]
    floor: bool = True

    def holds(self, figure: float, limit: float) -> bool:
        return figure >= limit if self.floor else figure <= limit


class Judged(NamedTuple):
    line: Line
    found: Found
    absent: tuple[str, ...] = ()  # which of its tasks failed, and why

    @property
    def figure(self) -> float:
        return statistics.median(self.found.values)

    @property
    def held(self) -> bool | None:
        """None for what was not measured."""
        return self.line.holds(self.figure, self.line.bar) if self.found.values else None

    @property
    def verdict(self) -> str:
        if self.held is None:
            return "not measured"
        if not self.held:
            return "**missed**"
        return "held, aim reached" if self.line.holds(self.figure, self.line.aim) else "held"

    def row(self) -> tuple[str, str, str, str, str, str]:
        """What, the figure, its spread over the rounds, bar, aim, verdict."""
        line, values = self.line, self.found.values
        sign = "" if line.floor else "≤ "
        limits = (sign + line.form.format(line.bar), sign + line.form.format(line.aim))
        name = f"{line.name} ({self.found.beside})" if self.found.beside else line.name
        if not values:
            return (name, "; ".join(self.absent) or "not in this run", "", *limits, self.verdict)
        spread = f"{line.form.format(min(values))} – {line.form.format(max(values))}" if len(values) > 1 else "1 round"
        return (name, line.form.format(self.figure), spread, *limits, self.verdict)


def judge(line: Line, rounds: Rounds, absent: Mapping[str, str]) -> Judged:
    return Judged(line, line.find(rounds), tuple(f"{task}: {absent[task]}" for task in line.tasks if task in absent))


# ----------------------------------------------------------------------------------------------------------------- values


def _series(rounds: Rounds, *places: Place) -> list[tuple[float, ...]]:
    """Each round's values of these figures, where it has them all."""
    full = [seen for seen in rounds if all(figure in seen.get(task, {}) for task, figure in places)]
    return [tuple(seen[task][figure] for task, figure in places) for seen in full]


def _of(name: str, limits: tuple[float, float], form: str, formula: Callable[..., float], *places: Place, floor: bool = True) -> Line:
    """A line whose value is a formula of figures of one round."""

    def find(rounds: Rounds) -> Found:
        return Found([formula(*values) for values in _series(rounds, *places)])

    return Line(name, *limits, form, tuple(dict.fromkeys(task for task, _ in places)), find, floor)


def _over(name: str, limits: tuple[float, float], ours: Place, *rivals: Place) -> Line:
    """A line whose value is ours over the best rival's."""

    def find(rounds: Rounds) -> Found:
        medians = {rival: statistics.median(v for (v,) in seen) for rival in rivals if (seen := _series(rounds, rival))}
        if not medians:
            return Found([])
        best = max(medians, key=lambda rival: medians[rival])
        ratios = [mine / theirs for mine, theirs in _series(rounds, ours, best)]
        if len(ratios) < len(_series(rounds, ours)):  # a peer that ran in some rounds only: compare with its median
            ratios = [mine / medians[best] for (mine,) in _series(rounds, ours)]
        return Found(ratios, best[0] if len(rivals) > 1 else "")

    return Line(name, *limits, "{:.2f} x", (ours[0], *dict.fromkeys(task for task, _ in rivals)), find)


def _times(a: float, b: float) -> float:
    return a / b


def _share_of_bandwidth(tok_s: float, bytes_per_token: float, dram_gb_s: float) -> float:
    return 1e-9 * tok_s * bytes_per_token / dram_gb_s


def _share_of_peak(tok_s: float, weights: float, int8_gop_s: float) -> float:
    return 2e-9 * tok_s * weights / int8_gop_s


def _overhead_mb(resident: float, packed: float, kv: float) -> float:
    return (resident - packed - kv) / 1e6


# ------------------------------------------------------------------------------------------------------------------ table

_OURS = "camshaft Q4_1"
_LLAMA = ("llama.cpp Q4_0", "llama.cpp Q4_1")
_IN_TURN = "prefill in turn"
_RIVALS = ("llama.cpp Q4_0", "OpenVINO", "transformers")
_SHARE, _X = "{:.2f}", "{:.2f} x"


def lines(avx512: bool) -> tuple[Line, ...]:
    """All lines, in the order of the report."""
    dram, int8 = ("roofline", "dram_gb_s"), ("roofline", "int8_gop_s")
    decode, prefill = (_OURS, DECODE), (_OURS, PREFILL)
    return (
        _of("decode, batch 1: share of DRAM bandwidth", (0.80, 0.92), _SHARE, _share_of_bandwidth, decode, (_OURS, "tensor_bytes"), dram),
        _over("decode, batch 1, over llama.cpp's best", (1.3, 1.45), decode, *((task, DECODE) for task in _LLAMA)),
        _over("prefill 512 over OpenVINO", (1.25, 1.5), prefill, ("OpenVINO", PREFILL)),
        _of("prefill 512 over llama.cpp's best", (2.4, 3.0), _X, _times, (_IN_TURN, OURS), (_IN_TURN, LLAMA)),
        _of("prefill 512: share of int8 peak", (0.48, 0.58), _SHARE, _share_of_peak, prefill, (_OURS, "linear_weights"), int8),
        *(
            _over(f"{batch}, generated, over the best peer", limits, (_OURS, batch), *((task, batch) for task in _RIVALS))
            for batch, limits in zip(BATCHES, ((2.2, 2.8), (2.0, 2.8)), strict=True)
        ),
        _of(
            "4 tokens verified at once: time over that of 1",
            (1.5, 1.3),
            _X,
            _times,
            ("verify", "4 tokens"),
            ("verify", "1 token"),
            floor=False,
        ),
        _of(
            "decode at 4,096, bf16 cache: share of DRAM bandwidth",
            (0.70, 0.85),
            _SHARE,
            _share_of_bandwidth,
            ("long", "decode, bf16"),
            ("long", "bytes, bf16"),
            dram,
        ),
        *_same_file("Gemma", "Gemma 3 270M Q4_K_M"),
        *_same_file("Q8_0", "Q8_0"),
        *_same_file("BF16", "BF16", decode_bar=1.0),
        *_avx2(avx512),
        *_served(),
        *_threads(),
        *_int8_cache(),
    )


def _same_file(kind: str, name: str, decode_bar: float = 1.15) -> tuple[Line, ...]:
    bars = ((DECODE, decode_bar), (PREFILL, 1.15))
    return tuple(
        _over(f"{name}: {figure} over llama.cpp", (bar, 1.3), (f"camshaft {kind}", figure), (f"llama.cpp {kind}", figure))
        for figure, bar in bars
    )


def _avx2(avx512: bool) -> tuple[Line, ...]:
    """Where a machine has nothing better than AVX2, what is compared above is what is wanted here."""
    ours, theirs = ("camshaft avx2", "llama.cpp avx2") if avx512 else (_OURS, _LLAMA[0])
    return tuple(
        _over(f"avx2 over llama.cpp for AVX2: {figure}", (1.0, 1.3), (ours, figure), (theirs, figure))
        for figure in (DECODE, PREFILL, *BATCHES)
    )


def _served() -> tuple[Line, ...]:
    resident = ("resident", "resident_bytes"), (_OURS, "packed_bytes"), ("resident", "kv_bytes")
    beyond = ("http", "first_token_beyond_prefill_s")
    both = ("http", "gen_tok_s"), ("http", "engine")
    return (
        _of("32 x (128 + 128) over HTTP, streaming, over the engine alone", (0.93, 0.97), _X, _times, *both),
        _of("first token over HTTP, idle, 32-token prompt, beyond prefill", (4, 2), "{:.1f} ms", lambda s: 1e3 * s, beyond, floor=False),
        _of("from serve to ready, second start", (1.0, 0.5), "{:.2f} s", lambda s: s, ("start", "second_s"), floor=False),
        _of("from serve to ready, first start", (3.0, 1.5), "{:.2f} s", lambda s: s, ("start", "first_s"), floor=False),
        _of("resident memory above packed weights and KV budget", (150, 80), "{:.0f} MB", _overhead_mb, *resident, floor=False),
        _of("idle server: share of one core", (1, 0.2), "{:.2f} %", lambda share: 100 * share, ("resident", "idle_share"), floor=False),
    )


def _threads() -> tuple[Line, ...]:
    bars = ((PREFILL, 1.85), ("32 x decode", 1.8))
    others = "all threads over as many programs of one thread"
    return (
        *(
            _of(f"all threads over one: {figure}", (bar, 1.95), _X, _times, ("scaling", figure), ("scaling", f"{figure}, 1 thread"))
            for figure, bar in bars
        ),
        *(
            _of(f"{others}: {figure}", (0.95, 1.0), _SHARE, _times, ("scaling", figure), ("scaling", f"{figure}, programs"))
            for figure, _ in bars
        ),
    )


def _int8_cache() -> tuple[Line, ...]:
    def worse(int8: float, bf16: float) -> float:
        return 100 * (int8 / bf16 - 1)

    scores = ("quality, int8", "perplexity"), ("quality, bf16", "perplexity")
    return (
        _of("int8 KV over bf16: tokens in the same memory", (1.88, 1.93), _X, _times, ("room, int8", "tokens"), ("room, bf16", "tokens")),
        _of("int8 KV over bf16: perplexity", (0.2, 0.05), "{:+.3f} %", worse, *scores, floor=False),
        _of("int8 KV over bf16: decode at 4,096", (1.15, 1.25), _X, _times, ("long", "decode, int8"), ("long", "decode, bf16")),
    )
