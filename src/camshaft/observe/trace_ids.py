"""ChosenIds: ids of spans, where some were told to another server before their spans are made. Imported by `trace` alone."""

from __future__ import annotations

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator


class ChosenIds(RandomIdGenerator):
    """Random ones, but where a choice is set."""

    def __init__(self) -> None:
        self.trace_id = 0  # 0: any
        self.span_id = 0

    def generate_trace_id(self) -> int:
        return self.trace_id or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.span_id or super().generate_span_id()
