"""`camshaft pull`, `list` and `inspect`: models before they run."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from camshaft.cli import terminal
from camshaft.cli.command import Command, model_argument
from camshaft.formats import open_model, source
from camshaft.formats.summary import Summary, summarize


def _pull(args: argparse.Namespace) -> int:
    if notice := source.notice(args.model):
        terminal.note(notice)
    if source.drop_damaged(args.model):
        terminal.warn("the file that was here has a wrong checksum; it was removed and is fetched again")
    terminal.say(str(terminal.fetch(args.model)))
    return 0


def _list(_: argparse.Namespace) -> int:
    rows = [
        (entry.name, entry.title, _size(entry.bytes), entry.license.id, "yes" if path else "no")
        for entry, path in ((listed.entry, listed.path) for listed in source.list_models())
    ]
    terminal.table(rows, ("model", "what", "size", "licence", "here"))
    terminal.note(f"pulled models are kept in {source.cache_dir()}; any .gguf file, Hugging Face folder or hf://owner/repo works too")
    return 0


def _inspect(args: argparse.Namespace) -> int:
    summary = summarize(open_model(terminal.fetch(args.model)))
    if args.json:
        terminal.say(msgspec.json.format(msgspec.json.encode(summary)).decode())
        return 0
    terminal.table(_facts(summary).items())
    for warning in summary.warnings:
        terminal.warn(warning)
    return 0


def _facts(s: Summary) -> dict[str, str]:
    spec = s.spec
    window = f", window {spec.window} in {sum(map(spec.is_windowed, range(spec.n_layers)))} layers" if spec.window else ""
    heads = f"{spec.n_heads} heads over {spec.n_kv_heads} of {spec.head_dim}"
    return {
        "name": s.name,
        "file": f"{s.path} ({s.kind}, {_size(s.file_bytes)})",
        "licence": s.license or "not stated",
        "family": f"{spec.family}, {s.n_parameters / 1e6:.1f} M parameters, {s.bits_per_weight:.2f} bits a weight",
        "shape": f"{spec.n_layers} layers of {spec.d_model}, feed-forward {spec.d_ff}, {heads}{window}",
        "context": f"{spec.max_position:,} tokens",
        "tensors": ", ".join(f"{t.type} {_size(t.n_bytes)}" for t in s.types),
        "tokenizer": f"{s.tokenizer}, {s.n_tokens:,} tokens",
        "chat template": "yes" if s.has_chat_template else "no (a base model: complete text with it)",
    }


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e9:.2f} GB" if n_bytes >= 1e9 else f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e6 else f"{n_bytes / 1e3:.1f} kB"


def _inspect_arguments(parser: argparse.ArgumentParser) -> None:
    model_argument(parser)
    parser.add_argument("--json", action="store_true", help="everything, for programs")


def _no_arguments(_: Any) -> None:
    return None


PULL = Command(
    name="pull",
    help="fetch a model and print where it is",
    examples=("camshaft pull smollm2-135m", "camshaft pull gemma3-270m", "camshaft pull hf://HuggingFaceTB/SmolLM2-360M-Instruct"),
    arguments=model_argument,
    handler=_pull,
)
LIST = Command(
    name="list", help="list the models that can be had by name", examples=("camshaft list",), arguments=_no_arguments, handler=_list
)
INSPECT = Command(
    name="inspect",
    help="show what a model file holds",
    examples=("camshaft inspect", "camshaft inspect ./model.gguf --json"),
    arguments=_inspect_arguments,
    handler=_inspect,
)
