"""Ticket: one request in line, and while a replica answers it."""

from __future__ import annotations

from msgspec import Struct


class Ticket(Struct, eq=False, kw_only=True):
    """Identity is the key. Mutable: the second block is the line's own."""

    key: int
    tenant: str
    rank: int  # its class: 0 realtime, 1 batch, ...
    n_prompt: int  # prompt tokens to compute at most
    n_output_most: int  # tokens to generate at most
    arrived_at: float  # Clock seconds
    deadline_at: float
    promise: bytes = b""  # digest of tenant and request: who comes back with it finds the place that was kept; b"" keeps none

    entered_at: float = 0.0
    work: float = 0.0  # weighted tokens that it is thought to cost
    passed_at: float | None = None  # since when others go before it, though it is first
    started: bool = False  # a replica began to compute it
    n_given_back: int = 0  # of the prompt tokens charged
    n_produced: int = 0
