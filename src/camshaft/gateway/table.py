"""Table: one table of a TOML file, read strictly. What is wrong is noted, with where it stands, and reading goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from camshaft.config import docs, resolve, suggest
from camshaft.errors import ConfigError

T = TypeVar("T")

MAX_PROBLEMS = 50  # more of them help nobody


class FileRejected(ConfigError):
    """A file that cannot be used. `problems` has a line for each thing that is wrong with it."""

    status = 400
    code = "file_rejected"

    def __init__(self, name: str, problems: Sequence[str] = (), *, param: str | None = None, retry_after_s: float | None = None) -> None:
        super().__init__(f"{name}: {'; '.join(problems)}" if problems else name, param=param, retry_after_s=retry_after_s)
        self.problems = tuple(problems)


class Problems:
    """What is wrong with one file."""

    def __init__(self) -> None:
        self._found: list[str] = []

    def add(self, path: str, text: str) -> None:
        self._found.append(f"[{path}] {text}" if path else text)

    def settle(self, name: str) -> None:
        """Raises FileRejected if there was any."""
        if self._found:
            more = len(self._found) - MAX_PROBLEMS
            raise FileRejected(name, self._found[:MAX_PROBLEMS] + ([f"and {more} more"] if more > 0 else []))


class Table:
    """Hands out what it is asked for. `close` notes what nobody asked for."""

    def __init__(self, path: str, raw: Mapping[str, Any], problems: Problems) -> None:
        self.path = path
        self._raw = dict(raw)
        self._asked: set[str] = set()
        self._problems = problems

    def problem(self, text: str) -> None:
        self._problems.add(self.path, text)

    def raw(self, key: str) -> Any:
        """The value as TOML has it; None where it is not there."""
        self._asked.add(key)
        return self._raw.get(key)

    def replace(self, key: str, value: Any) -> None:
        """Another spelling of the same value."""
        self._raw[key] = value

    def at(self, key: str) -> str:
        """The path of a table in this one."""
        shown = key if key.replace("-", "").replace("_", "").isalnum() and key.isascii() else f'"{key}"'
        return f"{self.path}.{shown}" if self.path else shown

    def table(self, key: str) -> Table:
        """The table under `key`; empty where there is none."""
        raw = self.raw(key)
        if raw is not None and not isinstance(raw, dict):
            self.problem(f"{key} is a table: write [{self.at(key)}]")
            raw = None
        return Table(self.at(key), raw or {}, self._problems)

    def tables(self, key: str, most: int) -> list[tuple[str, Table]]:
        """The tables in the table under `key`, by name."""
        outer = self.table(key)
        found = [(name, outer.table(name)) for name in outer._raw]
        if len(found) > most:
            outer.problem(f"has {len(found)} tables; at most {most} are taken")
        return found[:most]

    def good(self, kind: type[Any]) -> dict[str, Any]:
        """The keys of this table that belong to `kind` and suit it. What is wrong with the others is noted."""
        found: dict[str, Any] = {}
        for key in docs(kind):
            value = self.raw(key)
            if value is None:
                continue
            try:
                resolve(kind, file={key: value})
                found[key] = value
            except ConfigError as error:
                self.problem(error.message)
        return found

    def section(self, kind: type[T]) -> T:
        """The keys of this table that belong to `kind`; defaults for what is wrong, which is noted."""
        return resolve(kind, file=self.good(kind))[0]

    def pairs(self, key: str, kind: type[T]) -> tuple[tuple[str, T], ...]:
        """A table of plain values of one type, such as {acme = 50}."""
        table = self.table(key)
        wrong = [name for name, value in table._raw.items() if not isinstance(value, kind) or isinstance(value, bool)]
        for name in wrong:
            table.problem(f"{name} takes {'a whole number' if kind is int else 'text'}")
        return tuple((name, value) for name, value in table._raw.items() if name not in wrong)

    def close(self) -> None:
        """Notes each key that was not asked for, with the nearest that would have been right."""
        for key in self._raw:
            if key not in self._asked:
                self.problem(f"unknown setting {key[:100]!r}{suggest(key, self._asked)}")
