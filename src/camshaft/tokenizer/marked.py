"""Marked: a string that remembers which of its characters a user wrote.

A chat template is a program over strings. To know whether `<|im_end|>` in its output is the template's or a user's, every
character carries a mark through whatever the template does: slices, joins, trims, replacements. To any test (`==`, `in`,
`startswith`, a dict lookup) it is the plain string, so a template renders as it would without marks. Where the origin of a
result is not clear, it counts as the user's: text that steers nothing is the safe mistake.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

_USER, _CONTROL = b"\1", b"\0"
# No template has a use for wider columns; `'%999999999d'` and the like only eat memory.
_MAX_WIDTH = 10_000


class Marked(str):
    """`mask` has one byte a character: 1 where a user wrote it."""

    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, text: object = "", mask: bytes | None = None) -> Marked:
        """Without a mask, all of it is the user's."""
        made = super().__new__(cls, text)
        made.mask = _USER * len(made) if mask is None else mask
        return made

    def __str__(self) -> Marked:
        # str(x) keeps the marks: compiled templates call it on all that they print.
        return self

    def __add__(self, other: str) -> Marked:
        if not isinstance(other, str):
            return NotImplemented
        return Marked(plain(self) + plain(other), self.mask + mask_of(other))

    def __radd__(self, other: str) -> Marked:
        return Marked(plain(other) + plain(self), mask_of(other) + self.mask)

    def __mul__(self, n: SupportsIndex) -> Marked:
        return Marked(plain(self) * n, self.mask * n)

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> Marked:
        return percent(self, values)

    def __rmod__(self, template: str) -> Marked:
        return percent(template, self)

    def __getitem__(self, key: SupportsIndex | slice) -> Marked:
        mask = self.mask[key] if isinstance(key, slice) else self.mask[key : key + 1 or None]  # type: ignore[operator]
        return Marked(plain(self)[key], mask)

    def __iter__(self) -> Iterator[str]:
        return (Marked(char, self.mask[i : i + 1]) for i, char in enumerate(plain(self)))

    def _within(self, piece: str, at: int) -> Marked:
        return Marked(piece, self.mask[at : at + len(piece)])

    def _located(self, pieces: Iterable[str]) -> list[str]:
        """These pieces, which stand in this string in this order, with their marks."""
        whole, at = plain(self), 0
        found: list[str] = []
        for piece in pieces:
            at = whole.index(piece, at)
            found.append(self._within(piece, at))
            at += len(piece)
        return found

    def strip(self, chars: str | None = None, /) -> Marked:
        return self.lstrip(chars).rstrip(chars)

    def lstrip(self, chars: str | None = None, /) -> Marked:
        kept = plain(self).lstrip(chars)
        return self._within(kept, len(self) - len(kept))

    def rstrip(self, chars: str | None = None, /) -> Marked:
        return self._within(plain(self).rstrip(chars), 0)

    def removeprefix(self, prefix: str, /) -> Marked:
        return self[len(prefix) :] if prefix and self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Marked:
        return self[: len(self) - len(suffix)] if suffix and self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parted(plain(self).split(sep, maxsplit), sep)

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[str]:
        return self._parted(plain(self).rsplit(sep, maxsplit), sep)

    def _parted(self, pieces: list[str], sep: str | None) -> list[str]:
        if sep is None:
            return self._located(pieces)
        at = 0
        found: list[str] = []
        for piece in pieces:
            found.append(self._within(piece, at))
            at += len(piece) + len(sep)
        return found

    def splitlines(self, keepends: bool = False) -> list[str]:
        lines, at = plain(self).splitlines(keepends=True), 0
        found: list[str] = []
        for line in lines:
            shown = line if keepends else line.splitlines()[0]
            found.append(self._within(shown, at))
            at += len(line)
        return found

    def partition(self, sep: str, /) -> tuple[str, str, str]:
        a, b, c = plain(self).partition(sep)
        return self._within(a, 0), self._within(b, len(a)), self._within(c, len(a) + len(b))

    def rpartition(self, sep: str, /) -> tuple[str, str, str]:
        a, b, c = plain(self).rpartition(sep)
        return self._within(a, 0), self._within(b, len(a)), self._within(c, len(a) + len(b))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Marked:
        if not old:
            return Marked(plain(self).replace(old, new, count))
        return joined(new, self.split(old, count))

    def join(self, parts: Iterable[str], /) -> Marked:
        return joined(self, parts)

    def format(self, *values: object) -> Marked:  # type: ignore[override]
        return braces(self, values)

    def format_map(self, values: Mapping[str, object], /) -> Marked:  # type: ignore[override]
        return braces(self, (), values)

    def _recased(self, text: str) -> Marked:
        # A change of case may change the length (ß); then nobody can say which character is whose.
        return Marked(text, self.mask) if len(text) == len(self) else Marked(text, None if 1 in self.mask else _CONTROL * len(text))

    def upper(self) -> Marked:
        return self._recased(plain(self).upper())

    def lower(self) -> Marked:
        return self._recased(plain(self).lower())

    def title(self) -> Marked:
        return self._recased(plain(self).title())

    def capitalize(self) -> Marked:
        return self._recased(plain(self).capitalize())

    def casefold(self) -> Marked:
        return self._recased(plain(self).casefold())

    def swapcase(self) -> Marked:
        return self._recased(plain(self).swapcase())

    def translate(self, table: Any, /) -> Marked:
        return self._recased(plain(self).translate(table))

    def center(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        return Marked(plain(self).center(_width(width), fill))

    def ljust(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        return Marked(plain(self).ljust(_width(width), fill))

    def rjust(self, width: SupportsIndex, fill: str = " ", /) -> Marked:
        return Marked(plain(self).rjust(_width(width), fill))

    def zfill(self, width: SupportsIndex, /) -> Marked:
        return Marked(plain(self).zfill(_width(width)))

    def expandtabs(self, tabsize: SupportsIndex = 8) -> Marked:
        return Marked(plain(self).expandtabs(min(_width(tabsize), 64)))


def plain(text: str) -> str:
    """The same characters as an ordinary string."""
    return str.__str__(text)


def mask_of(text: str) -> bytes:
    """Whose each character is; an ordinary string is the template's."""
    return text.mask if isinstance(text, Marked) else _CONTROL * len(text)


def control(text: str) -> Marked:
    """A string of the template's own."""
    return text if isinstance(text, Marked) else Marked(text, _CONTROL * len(text))


def joined(sep: str, parts: Iterable[str]) -> Marked:
    """`sep.join(parts)`."""
    parts = list(parts)
    return Marked(plain(sep).join(map(plain, parts)), mask_of(sep).join(map(mask_of, parts)))


def shown(value: object) -> str:
    """What a template prints for a value. A list or an object may hold a user's words, so all of its text counts as theirs."""
    if isinstance(value, str):
        return value
    return str(value) if value is None or isinstance(value, (bool, int, float)) else Marked(str(value))


def percent(template: str, values: Any) -> Marked:
    """`template % values`, precise where `%s` is all that occurs."""
    fixed = control(template).split("%s")
    given = values if isinstance(values, tuple) else (values,)
    if "%" in "".join(fixed) or len(fixed) != len(given) + 1:
        _refuse_wide(plain(template))
        return Marked(plain(template) % (values if isinstance(values, Mapping) else given))
    return joined("", [x for pair in zip(fixed, [*map(shown, given), ""], strict=True) for x in pair])


def braces(template: str, values: tuple[object, ...], named: Mapping[str, object] | None = None) -> Marked:
    """`template.format(*values)`, without the attribute and index look-ups that reach into objects."""
    parts: list[str] = []
    auto = 0
    for literal, name, spec, conversion in string.Formatter().parse(plain(template)):
        parts.append(literal)
        if name is None:
            continue
        if name == "":
            name, auto = str(auto), auto + 1
        if not name.isalnum() or (spec and "{" in spec):
            raise ValueError("format fields may be plain names and numbers only")
        value = values[int(name)] if name.isdigit() else (named or {})[name]
        text = shown(value)
        _refuse_wide(spec or "")
        if spec or conversion:
            text = Marked(format(plain(value) if isinstance(value, str) else value, spec or ""))
        parts.append(text)
    return joined("", parts)


def _width(width: SupportsIndex) -> int:
    value = width.__index__()
    if value > _MAX_WIDTH:
        raise ValueError(f"a width of {value} is too wide")
    return value


def _refuse_wide(template: str) -> None:
    digits = "".join(char if char.isdigit() else " " for char in template).split()
    if "*" in template or any(len(d) > 4 for d in digits):
        raise ValueError("a format with a width as large as this is refused")
