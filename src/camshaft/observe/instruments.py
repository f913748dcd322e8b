"""Counters, gauges and histograms that cost well under a microsecond, because the engine loop writes them between steps.

They are shown through prometheus_client, as a custom collector: its own instruments keep a creation time per series, walk the
buckets one by one and look labels up at each call.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:  # imported when somebody asks for the numbers
    from prometheus_client.core import Metric

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


class Histogram:
    """Counts per bucket. `bounds` are inclusive upper bounds, ascending; what lies above the last goes to +Inf."""

    __slots__ = ("_counts", "_lock", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self.bounds = tuple(bounds)
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


C = TypeVar("C", Value, Histogram)


class Collector(Protocol):
    """What a prometheus_client registry asks for."""

    def collect(self) -> Iterable[Metric]: ...


class Family(Generic[C]):
    """One metric name with a child for each combination of label values. Fetch a child once and keep it."""

    def __init__(self, name: str, doc: str, labels: Sequence[str], make: Callable[[], C], show: Callable[[Family[C]], Metric]) -> None:
        self.name = name
        self.doc = doc
        self.labels = tuple(labels)
        self._make: Callable[[], C] = make
        self._show: Callable[[Family[C]], Metric] = show
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

    def collect(self) -> Iterable[Metric]:
        return [self._show(self)]


def counter(name: str, doc: str, labels: Sequence[str] = ()) -> Family[Value]:
    """A family of counters; `name` ends in _total."""
    return Family(name, doc, labels, Value, _show_counter)


def gauge(name: str, doc: str, labels: Sequence[str] = ()) -> Family[Value]:
    return Family(name, doc, labels, Value, _show_gauge)


def histogram(name: str, doc: str, bounds: Sequence[float], labels: Sequence[str] = ()) -> Family[Histogram]:
    return Family(name, doc, labels, lambda: Histogram(bounds), _show_histogram)


def _show_counter(family: Family[Value]) -> Metric:
    from prometheus_client.core import CounterMetricFamily

    metric = CounterMetricFamily(family.name.removesuffix("_total"), family.doc, labels=family.labels)
    for values, child in family.series():
        metric.add_metric(values, child.value)
    return metric


def _show_gauge(family: Family[Value]) -> Metric:
    from prometheus_client.core import GaugeMetricFamily

    metric = GaugeMetricFamily(family.name, family.doc, labels=family.labels)
    for values, child in family.series():
        metric.add_metric(values, child.value)
    return metric


def _show_histogram(family: Family[Histogram]) -> Metric:
    from prometheus_client.core import HistogramMetricFamily

    metric = HistogramMetricFamily(family.name, family.doc, labels=family.labels)
    for values, child in family.series():
        counts, total = child.snapshot()
        buckets: list[Sequence[str | float | None]] = []
        below = 0
        for bound, count in zip((*child.bounds, float("inf")), counts, strict=True):
            below += count
            buckets.append(["+Inf" if bound == float("inf") else f"{bound:g}", below])
        metric.add_metric(values, buckets, total)  # type: ignore[arg-type, unused-ignore]
    return metric
