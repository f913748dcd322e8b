"""What a replica's KV cache probably holds, from what was sent there. A hint for routing: being wrong costs time, never the answer."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

BLOCK = 64  # tokens in a hashed block, unless somebody asks for others
CHARS_PER_TOKEN = 4  # about, where a foreign model's tokens are not known
_TRUST_STEP = 0.1
_AT_END, _AT_START = 1, 2
_MOST_BLOCKS = 4096  # of one prompt; what lies behind them is not looked at


def chain(ids: Sequence[int], block: int, salt: str) -> tuple[int, ...]:
    """A number for each full block of the prompt, which names that block and all before it. `salt` keeps tenants apart."""
    return _chain(array("q", ids[: block * _MOST_BLOCKS]).tobytes(), 8 * block, salt)


def chain_of_text(text: str, block: int, salt: str) -> tuple[int, ...]:
    """The same for a model whose tokenizer is not known: a block is about `block` tokens of text."""
    n_chars = CHARS_PER_TOKEN * block
    return _chain(text[: n_chars * _MOST_BLOCKS].encode("utf-32-le", "surrogatepass"), 4 * n_chars, salt)


def _chain(data: bytes, stride: int, salt: str) -> tuple[int, ...]:
    state = blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=8, person=b"prefix")
    state.update(b"\0")
    numbers = []
    for start in range(0, len(data) - stride + 1, stride):
        state.update(data[start : start + stride])
        numbers.append(int.from_bytes(state.copy().digest(), "little"))
    return tuple(numbers)


class Prefixes:
    """The chained blocks of one replica, least recently used out first.

    A chain is used tail first, so a block is never older than those that follow it. Hence what is held is closed under prefixes, and how
    much of a chain is held is found by bisection. `trust` is the share of what should be cached there that really was.
    """

    def __init__(self, n_blocks: int) -> None:
        self.trust = 1.0
        self._tells = 0  # what was cached: never so far, at the end, at the start
        self._most = max(1, n_blocks)
        self._held: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def match(self, blocks: Sequence[int]) -> int:
        """How many of the chain's first blocks are held."""
        return bisect_left(blocks, True, key=lambda number: number not in self._held)

    def found(self, expected: int, cached: int, at_start: bool) -> bool:
        """A request found so many tokens cached where so many were held, as it was told at its start or by its usage at the end.

        Many servers cannot tell at the start, and some not at all, and say 0: nothing is made of that until a hit has shown that they
        can. One that tells at the start is not heard again at the end. False where it says nothing.
        """
        if cached > 0:
            self._tells = max(self._tells, _AT_START if at_start else _AT_END)
        if self._tells != (_AT_START if at_start else _AT_END):
            return False
        if expected > 0:
            self.trust += _TRUST_STEP * (min(1.0, cached / expected) - self.trust)
        return True

    def use(self, blocks: Sequence[int]) -> None:
        """This prompt is computed there now."""
        held = self._held
        for number in reversed(blocks[: self._most]):
            held[number] = None
            held.move_to_end(number)
        while len(held) > self._most:
            held.popitem(last=False)
