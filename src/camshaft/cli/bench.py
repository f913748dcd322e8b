"""`camshaft bench`: engine, serve, roofline, invariance."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any
from urllib.parse import urlsplit

import msgspec

from camshaft import _native
from camshaft.bench import engine, invariance, serve
from camshaft.bench.machine import fingerprint
from camshaft.bench.sse_client import Target
from camshaft.cli import terminal
from camshaft.cli.command import Command, model_argument
from camshaft.config import EngineConfig, add_flags, resolve
from camshaft.errors import BadRequest, Unavailable


def _arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(title="benches", metavar="BENCH", required=True)
    for name, help, arguments, handler in _BENCHES:
        sub = kinds.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".", allow_abbrev=False)
        sub.add_argument("--json", action="store_true", help="print the report as JSON")
        arguments(sub)
        sub.set_defaults(bench=handler, parser=sub)


def _handler(args: argparse.Namespace) -> int:
    return int(args.bench(args))


def _show(args: argparse.Namespace, report: Any, facts: dict[str, str]) -> None:
    if args.json:
        terminal.say(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    terminal.table(facts.items())


# ------------------------------------------------------------------------------------------------------------------ engine


def _engine_arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    parser.add_argument("--rounds", type=int, default=3, help="figures are medians of so many rounds (default: 3)")
    parser.add_argument(
        "--batch", action="append", metavar="NxP+G", help="n requests of P prompt and G generated tokens; repeatable (default: 8x128+128)"
    )
    add_flags(parser, EngineConfig)


def _engine(args: argparse.Namespace) -> int:
    config, _ = resolve(EngineConfig, cli=vars(args), env=os.environ)
    if not 1 <= args.rounds <= 100:
        raise BadRequest("--rounds must lie between 1 and 100")
    batches = [_parse_batch(text) for text in args.batch or ["8x128+128"]]
    report = engine.measure(str(terminal.fetch(args.model)), config, batches=batches, rounds=args.rounds)
    facts = {
        "model": report.model,
        "machine": _machine_line(),
        f"prefill {report.prefill.tokens}": f"{report.prefill.tok_s:,.0f} tok/s ({report.prefill.share_of_peak:.0%} of the int8 peak)",
        "decode": f"{report.decode.tok_s:,.0f} tok/s ({report.decode.share_of_bandwidth:.0%} of the memory bandwidth)",
        **{f"{b.n} x ({b.prompt} + {b.gen})": f"{b.gen_tok_s:,.0f} generated tok/s" for b in report.batch},
        "roofline": f"{report.roofline.dram_gb_s} GB/s, {report.roofline.int8_gop_s:,.0f} GOP/s int8",
    }
    _show(args, report, facts)
    return 0


def _parse_batch(text: str) -> tuple[int, int, int]:
    try:
        n, rest = text.split("x")
        prompt, gen = rest.split("+")
        case = int(n), int(prompt), int(gen)
    except ValueError:
        raise BadRequest(f"--batch takes NxP+G such as 32x128+128, not {text!r}") from None
    if min(case) < 1 or case[0] > 1024 or max(case) > 100_000:
        raise BadRequest(f"--batch {text}: numbers from 1 on, at most 1024 requests")
    return case


# ---------------------------------------------------------------------------------------------------------------- roofline


def _roofline_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=0, help="0 takes the cores that this process may use (default: 0)")


def _roofline(args: argparse.Namespace) -> int:
    if not 0 <= args.threads <= 1024:
        raise BadRequest("--threads must lie between 0 and 1024")
    limits = engine.roofline(args.threads or _native.usable_cores(), fingerprint().isa)
    facts = {"machine": _machine_line(), "memory reads": f"{limits.dram_gb_s} GB/s", "int8 dot products": f"{limits.int8_gop_s:,.0f} GOP/s"}
    _show(args, limits, facts)
    return 0


# -------------------------------------------------------------------------------------------------------------- invariance


def _invariance_arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    parser.add_argument(
        "--isa", action="append", metavar="ISA", help="ref, avx2 or avx512; repeatable (default: each that this machine has)"
    )
    add_flags(parser, EngineConfig)


def _invariance(args: argparse.Namespace) -> int:
    config, _ = resolve(EngineConfig, cli=vars(args), env=os.environ)
    path = terminal.fetch(args.model)
    reports = []
    for isa in args.isa or _native.available_isas():
        terminal.note(f"{isa}: {len(invariance.VARIANTS)} schedules")
        reports.append(asyncio.run(invariance.run(path, config, isa, _tell_verdict)))
    held = all(v.n_different == 0 for report in reports for v in report.verdicts)
    if args.json:
        terminal.say(msgspec.json.format(msgspec.json.encode(reports)).decode())
    else:
        n = sum(v.n_compared for report in reports for v in report.verdicts)
        terminal.say(f"{n:,} sampled positions compared, logits and ids bit for bit: {'all equal' if held else 'THERE ARE DIFFERENCES'}")
    return 0 if held else 1


def _tell_verdict(verdict: invariance.Verdict) -> None:
    outcome = "equal" if verdict.n_different == 0 else f"{verdict.n_different} DIFFERENT"
    terminal.note(f"{verdict.variant}: {verdict.n_compared} positions {outcome} ({verdict.evidence})")


# ------------------------------------------------------------------------------------------------------------------- serve


def _serve_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("url", help="address of a running server, such as http://127.0.0.1:8000")
    parser.add_argument("--model", default="", help="name as in /v1/models (default: the server's only one)")
    parser.add_argument("--api-key", default="", help="sent as a bearer token")
    defaults = serve.Load()
    parser.add_argument("--requests", type=int, default=defaults.requests, help=f"(default: {defaults.requests})")
    parser.add_argument("--concurrency", type=int, default=defaults.concurrency, help=f"clients at once (default: {defaults.concurrency})")
    parser.add_argument("--prompt-words", type=int, default=defaults.prompt_words, help=f"(default: {defaults.prompt_words})")
    parser.add_argument("--gen", type=int, default=defaults.gen, help=f"tokens per answer (default: {defaults.gen})")
    parser.add_argument("--rate", type=float, default=0.0, help="arrivals a second, Poisson; 0 keeps all clients busy (default: 0)")


def _serve(args: argparse.Namespace) -> int:
    url = urlsplit(args.url)
    if url.scheme != "http" or not url.hostname:
        raise BadRequest(f"{args.url!r} is not an http:// address")
    if not (
        1 <= args.requests <= 100_000
        and 1 <= args.concurrency <= 4096
        and args.gen >= 1
        and args.prompt_words >= 1
        and 0 <= args.rate < 1e6
    ):
        raise BadRequest("--requests from 1 to 100,000, --concurrency from 1 to 4096, --gen and --prompt-words from 1, --rate from 0")
    load = serve.Load(args.requests, args.concurrency, args.prompt_words, args.gen, args.rate)
    report = asyncio.run(serve.run(Target(url.hostname, url.port or 80, args.api_key), args.model, load))
    facts = {
        "answers": f"{report.ok} complete, {report.failed} failed, in {report.seconds:.1f} s",
        "generated": f"{report.generated_tok_s:,.0f} tok/s",
        **{
            label: f"p50 {s.p50:.1f}, p90 {s.p90:.1f}, p99 {s.p99:.1f} ms"
            for label, s in (
                ("time to first token", report.ttft_ms),
                ("per output token", report.tpot_ms),
                ("between chunks", report.gap_ms),
            )
        },
        "chunks per answer": f"{report.chunks_per_request}",
    }
    if report.ok == 0:
        raise Unavailable(
            f"none of {load.requests} requests to {args.url} was answered; is a camshaft serve running there, and is the key right?"
        )
    _show(args, report, facts)
    return 0 if report.failed == 0 else 1


def _machine_line() -> str:
    m = fingerprint()
    return f"{m.cpu}, {m.cores} cores, {m.isa}, camshaft {m.camshaft}"


_BENCHES = (
    ("engine", "prefill, decode and batch speed, as shares of what this machine can do", _engine_arguments, _engine),
    ("serve", "a load of streaming clients against a running server", _serve_arguments, _serve),
    ("roofline", "this machine's memory bandwidth and int8 peak", _roofline_arguments, _roofline),
    ("invariance", "the same requests under many schedules: logits must be equal bit for bit", _invariance_arguments, _invariance),
)

COMMAND = Command(
    name="bench",
    help="measure this machine and the engine on it",
    examples=(
        "camshaft bench engine --batch 32x128+128",
        "camshaft bench roofline --json",
        "camshaft bench invariance",
        "camshaft bench serve http://127.0.0.1:8000 --requests 128 --concurrency 32",
    ),
    arguments=_arguments,
    handler=_handler,
)
