"""The garbage collector, kept out of the way of a start."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing is collected inside, and what was made inside is never looked at again.

    Loading makes a million objects that live as long as the process, vocabularies above all. Walking them takes a tenth of a start,
    and later holds up every stream for as long as a full collection takes.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
