"""Counters, gauges and histograms that cost well under a microsecond, because the engine loop writes them between steps.

They write themselves down as Prometheus reads them (text format 0.0.4), because streams wait for whoever asks: prometheus_client takes ten
times as long, and its import a multiple of that.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, Literal, TypeVar

MAX_SERIES = 256  # per family; label values come from closed sets, so that more of them is a mistake of ours


class Value:
    """One number. A counter's only grows; a gauge's is set."""

    __slots__ = ("_lock", "value")

    def __init__(self) -> None:
        # Several threads write (engine, event loop), and `+=` on an attribute is not atomic.
        self._lock = threading.Lock()
        self.value = 0.0

    def add(self, amount: float = 1.0) -> None:
        with self._lock:
            self.value += amount

    def set(self, value: float) -> None:
        self.value = value

    def lines(self, name: str, labels: Sequence[str]) -> Iterator[str]:
        """This series as Prometheus reads it; `labels` are `name="value"`."""
        yield f"{_series(name, labels)} {float(self.value)!r}"


class Histogram:
    """Counts per bucket. `bounds` are inclusive upper bounds, ascending; what lies above the last goes to +Inf."""

    __slots__ = ("_counts", "_lock", "_shown", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self.bounds = tuple(bounds)
        self._shown = tuple([_label("le", f"{bound:g}") for bound in bounds] + [_label("le", "+Inf")])
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        i = bisect_left(self.bounds, value)
        with self._lock:
            self._counts[i] += 1
            self._sum += value

    def observe_all(self, values: Iterable[float]) -> None:
        """A step's worth of observations under one lock."""
        bounds = self.bounds
        counts = self._counts
        with self._lock:
            for value in values:
                counts[bisect_left(bounds, value)] += 1
                self._sum += value

    def snapshot(self) -> tuple[list[int], float]:
        """(counts per bucket, not cumulative, +Inf last; sum of the values), of one moment."""
        with self._lock:
            return list(self._counts), self._sum

    def lines(self, name: str, labels: Sequence[str]) -> Iterator[str]:
        """This series as Prometheus reads it: cumulative buckets, then their count and the sum."""
        counts, total = self.snapshot()
        start = f"{name}_bucket{{{''.join(label + ',' for label in labels)}"
        below = 0
        for shown, count in zip(self._shown, counts, strict=True):
            below += count
            yield f"{start}{shown}}} {below}.0"
        yield f"{_series(name + '_count', labels)} {below}.0"
        yield f"{_series(name + '_sum', labels)} {total!r}"


C = TypeVar("C", Value, Histogram)
Kind = Literal["counter", "gauge", "histogram"]


class Family(Generic[C]):
    """One metric name with a child for each combination of label values. Fetch a child once and keep it."""

    def __init__(self, name: str, doc: str, labels: Sequence[str], make: Callable[[], C], kind: Kind) -> None:
        self.name = name
        self.doc = doc
        self.labels = tuple(labels)
        self._make: Callable[[], C] = make
        self._kind = kind
        self._children: dict[tuple[str, ...], C] = {}
        self._lock = threading.Lock()

    def child(self, *values: str) -> C:
        """The series of these label values, made at first use. Raises ValueError for a wrong count or too many series."""
        found = self._children.get(values)
        if found is not None:
            return found
        if len(values) != len(self.labels):
            raise ValueError(f"{self.name} has the labels {self.labels}, not {values}")
        with self._lock:
            if len(self._children) >= MAX_SERIES:
                raise ValueError(f"{self.name} has more than {MAX_SERIES} series")
            return self._children.setdefault(values, self._make())

    def series(self) -> Iterator[tuple[tuple[str, ...], C]]:
        with self._lock:
            yield from list(self._children.items())

    def lines(self) -> Iterator[str]:
        """The family as Prometheus reads it. `doc` and the names are ours and need no escapes."""
        yield f"# HELP {self.name} {self.doc}"
        yield f"# TYPE {self.name} {self._kind}"
        for values, child in self.series():
            yield from child.lines(self.name, [_label(name, value) for name, value in zip(self.labels, values, strict=True)])


def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Family[Value]:
    """A family of counters; `name` ends in _total."""
    return Family(name, doc, labels, Value, "counter")


def gauge(name: str, doc: str, labels: Sequence[str] = ()) -> Family[Value]:
    return Family(name, doc, labels, Value, "gauge")


def histogram(name: str, doc: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> Family[Histogram]:
    return Family(name, doc, labels, lambda: Histogram(bounds), "histogram")


def _series(name: str, labels: Sequence[str]) -> str:
    return f"{name}{{{','.join(labels)}}}" if labels else name


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'{name}="{escaped}"'
