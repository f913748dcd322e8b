"""Settings: one frozen dataclass per section gives the command line, the environment, the TOML file and the reference page.

Precedence, highest first: command line, environment (CAMSHAFT_<FLAG>), file, default. Unknown keys are errors with a suggestion.
"""

from __future__ import annotations

import argparse
import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_origin, get_type_hints

from camshaft.errors import ConfigError

T = TypeVar("T")

MAX_SHOWN_CHARS = 80  # of a value in an error
_KINDS = {bool: "a boolean", int: "a whole number", float: "a number", str: "text", tuple[str, ...]: "a list of texts"}


@dataclass(frozen=True)
class Doc:
    """What a setting means to a reader and which values it takes. `lo` and `hi` are inclusive."""

    help: str
    lo: float | None = None
    hi: float | None = None
    choices: tuple[str, ...] = ()
    secret: bool = False  # an error must not quote it


def opt(
    default: Any, help: str, *, lo: float | None = None, hi: float | None = None, choices: Iterable[str] = (), secret: bool = False
) -> Any:
    """A dataclass field that documents itself. Bounds of a list are those of its length."""
    return dataclasses.field(default=default, repr=not secret, metadata={"doc": Doc(help, lo, hi, tuple(choices), secret)})


@dataclass(frozen=True)
class EngineConfig:
    """How one model runs on this machine."""

    max_model_len: int = opt(0, "context in tokens; 0 takes 4,096 or the model's own, whichever is less", lo=0, hi=10_000_000)
    kv_memory: str = opt(
        "auto", "memory for the KV cache, such as 512M; auto takes what max-num-seqs contexts need, at most a quarter of free memory"
    )
    kv_dtype: str = opt(
        "bf16", "type of the KV cache; int8 holds nearly twice the tokens and reads half the bytes", choices=("bf16", "int8", "f32")
    )
    block_size: int = opt(32, "tokens in a KV block (16, 32, 64 or 128)", lo=16, hi=128)
    threads: int = opt(0, "compute threads; 0 takes the cores that this process may use", lo=0, hi=1024)
    pin_threads: bool = opt(True, "each compute thread stays on a core of its own, where there are as many of them as usable cores")
    compute: str = opt(
        "int8", "int8 quantises activations for packed weights; f32 computes on dequantised weights", choices=("int8", "f32")
    )
    quantize: str = opt("none", "pack the weights of a Hugging Face folder at load", choices=("none", "q8", "q4"))
    weight_cache_gb: float = opt(
        8.0, "most that packed weights may take on disk, in GB, so that the next start maps them; 0 keeps and uses none", lo=0, hi=100_000
    )
    max_num_seqs: int = opt(32, "sequences that run at once", lo=1, hi=1024)
    max_num_batched_tokens: int = opt(512, "tokens that one step computes, prefill and decode together", lo=1, hi=65_536)
    policy: str = opt("priority", "order of the waiting: fcfs, or priority (lower is sooner) with ageing", choices=("fcfs", "priority"))
    age_s: float = opt(10.0, "seconds of waiting that are worth one step of priority", lo=0.001, hi=86_400)
    watermark: float = opt(0.02, "share of KV blocks kept free when admitting, against thrash", lo=0, hi=0.5)
    max_queued_requests: int = opt(1024, "requests that may wait", lo=0, hi=1_000_000)
    max_queued_tokens: int = opt(2_000_000, "prompt tokens that may wait", lo=0, hi=1_000_000_000)
    queue_timeout_s: float = opt(120.0, "longest wait for admission before a clear refusal", lo=0.001, hi=86_400)
    prefix_caching: bool = opt(True, "share KV blocks of equal prefixes")
    evict: str = opt("retention", "which cached block goes first", choices=("lru", "retention"))
    flush_tokens: int = opt(3, "send a stream's text when so many tokens wait; 0 sends each token", lo=0, hi=1024)
    flush_ms: float = opt(30.0, "send a stream's text when the oldest waited so long; 0 sends each token", lo=0, hi=10_000)
    flush_breaks: bool = opt(True, "send at a natural break (Latin and CJK punctuation, newline)")
    default_deadline_s: float = opt(
        600.0, "longest time from arrival to the terminal event, unless the request says less", lo=0.01, hi=86_400
    )


@dataclass(frozen=True)
class ServerConfig:
    """The HTTP edge."""

    host: str = opt("127.0.0.1", "address to bind")
    port: int = opt(8000, "port to bind; 0 takes a free one", lo=0, hi=65_535)
    api_keys: str = opt("", "file of API keys, one `key` or `key tenant` a line; without it no key is asked for")
    served_model_name: str = opt("", "name that clients use; the model's own by default")
    max_body_bytes: int = opt(2_000_000, "largest request body", lo=1024, hi=1_000_000_000)
    max_n: int = opt(16, "largest n", lo=1, hi=1024)
    max_stops: int = opt(16, "most stop strings", lo=0, hi=1024)
    max_logit_bias: int = opt(1024, "most logit_bias entries", lo=0, hi=1_000_000)
    max_top_logprobs: int = opt(20, "largest top_logprobs", lo=0, hi=1024)
    max_schema_depth: int = opt(32, "deepest JSON schema", lo=1, hi=256)
    max_concurrent_requests: int = opt(1024, "requests inside the server at once", lo=1, hi=1_000_000)
    unknown_fields: str = opt("reject", "what to do with request fields that are not known", choices=("reject", "ignore"))
    drain_s: float = opt(30.0, "longest wait for running requests on shutdown", lo=0, hi=3600)
    log_level: str = opt("info", "least severe log line shown", choices=("debug", "info", "warning", "error"))
    log_format: str = opt("text", "key=value lines, or one JSON object a line", choices=("text", "json"))


def flag(name: str) -> str:
    """The command-line spelling of a field."""
    return "--" + name.replace("_", "-")


def env_name(name: str) -> str:
    """The environment spelling of a field."""
    return "CAMSHAFT_" + name.upper()


def docs(section: type[Any]) -> dict[str, Doc]:
    """Each field of a section with its documentation."""
    return {f.name: f.metadata["doc"] for f in dataclasses.fields(section)}


def add_flags(parser: argparse.ArgumentParser, section: type[Any]) -> None:
    """Declare a section's flags. Values stay strings; `resolve` parses them, so that every source fails alike."""
    group = parser.add_argument_group(section.__name__.removesuffix("Config").lower(), section.__doc__)
    for f in dataclasses.fields(section):
        doc: Doc = f.metadata["doc"]
        shown = "|".join(doc.choices) if doc.choices else "BOOL" if isinstance(f.default, bool) else f.name.split("_")[-1].upper()
        shown_default = "" if f.default == "" else f" (default: {f.default})"
        group.add_argument(flag(f.name), dest=f.name, default=None, metavar=shown, help=doc.help.replace("%", "%%") + shown_default)


def resolve(
    section: type[T], *, cli: Mapping[str, Any] = {}, env: Mapping[str, str] = {}, file: Mapping[str, Any] = {}
) -> tuple[T, dict[str, str]]:
    """A section from its sources, and for each field that is not a default, where its value is from.

    Raises ConfigError for a value out of range or of the wrong type and for an unknown key in `file`, with the nearest known one.
    """
    known = docs(section)  # type: ignore[type-var, unused-ignore]
    for key in file:
        if key not in known:
            raise ConfigError(f"unknown setting {key!r}{suggest(key, known)}")
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name, doc in known.items():
        candidates = (("command line", cli.get(name)), ("environment", env.get(env_name(name))), ("file", file.get(name)))
        for source, raw in candidates:
            if raw is not None:
                values[name] = _parse(section, name, doc, raw) if source != "file" else _checked(section, name, doc, raw)
                sources[name] = source
                break
    return section(**values), sources


def suggest(key: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known key, or nothing."""
    near = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def parse_bytes(text: str, name: str) -> int:
    """`512M` -> 536870912. Suffixes K M G are powers of 1024."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    body = text.strip().upper().removesuffix("IB").removesuffix("B")
    scale = units.get(body[-1:], 1)
    digits = body[:-1] if body[-1:] in units else body
    try:
        value = float(digits) * scale
    except ValueError:
        raise ConfigError(f"{flag(name)} takes a size such as 512M or 2G, not {text!r}") from None
    if not 0 < value < 1 << 50:
        raise ConfigError(f"{flag(name)} is out of range: {text!r}")
    return int(value)


def _parse(section: type[Any], name: str, doc: Doc, raw: Any) -> Any:
    """A value from the command line or the environment, where everything is text."""
    kind = get_type_hints(section)[name]
    try:
        value = _to_bool(raw) if kind is bool else _to_words(raw) if get_origin(kind) is tuple else kind(raw)
    except (TypeError, ValueError):
        raise ConfigError(f"{flag(name)} takes {_KINDS[kind]}, not {raw!r}") from None
    _bounded(flag(name), doc, value)
    return value


def _checked(section: type[Any], name: str, doc: Doc, raw: Any) -> Any:
    """A value from a file, which has types of its own: a number in quotes is a mistake."""
    kind = get_type_hints(section)[name]
    if get_origin(kind) is tuple:
        fits = isinstance(raw, (list, tuple)) and all(isinstance(word, str) for word in raw)
    elif kind in (int, float):
        fits = isinstance(raw, (int, kind)) and not isinstance(raw, bool)
    else:
        fits = isinstance(raw, kind)
    if not fits:
        raise ConfigError(f"{name} takes {_KINDS[kind]}, not {'what stands there' if doc.secret else _shown(raw)}")
    value = tuple(raw) if get_origin(kind) is tuple else kind(raw)
    _bounded(name, doc, value)
    return value


def _bounded(shown: str, doc: Doc, value: Any) -> None:
    """Raises ConfigError for a value that is none of the choices or out of range. Bounds of a list are those of its length."""
    if doc.choices and value not in doc.choices:
        raise ConfigError(f"{shown} is one of {', '.join(doc.choices)}, not {_shown(value)}{suggest(str(value), doc.choices)}")
    size, what = (len(value), f"the length of {shown}") if isinstance(value, tuple) else (value, shown)
    # The comparison is written so that NaN fails it.
    if (doc.lo is not None and not size >= doc.lo) or (doc.hi is not None and not size <= doc.hi):
        raise ConfigError(f"{what} must lie between {doc.lo:g} and {doc.hi:g}, not {size!r}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "..."


def _to_words(raw: Any) -> tuple[str, ...]:
    return tuple(word.strip() for word in str(raw).split(",") if word.strip())


def _to_bool(raw: Any) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    word = str(raw).strip().lower()
    if word not in words:
        raise ValueError(raw)
    return words[word]
