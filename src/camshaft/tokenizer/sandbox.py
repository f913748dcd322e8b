"""Sandbox: where a chat template runs. It cannot reach Python, run for long, or grow large, and strings keep their marks.

Templates come out of model files, so they are strangers' programs. jinja2's immutable sandbox keeps them from objects; what it
does not bound is done here: every loop turn, macro call and operation counts against a deadline, operations that multiply are
checked before they are done, and filters are a list of known ones. No watchdog thread is needed (Python cannot stop a thread
anyway), because no single operation that passes these checks takes long.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from threading import local
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from camshaft.errors import BadRequest
from camshaft.tokenizer.marked import Marked, control, joined, percent, plain, shown
from camshaft.types import Clock

_MAX_POWER = 64
_MAX_ITEMS = 200_000
_MAX_ALL = 16  # times the largest output: what all strings on the way to it may add up to
_ITEM = 8  # bytes of a list's item
# jinja2's own filters that make no new text out of old, so that marks pass through them.
_KEPT_FILTERS = (
    "abs", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items", "last", "length", "map",
    "max", "min", "reject", "rejectattr", "reverse", "round", "select", "selectattr", "slice", "sort", "sum", "unique", "wordcount",
)  # fmt: skip


class Budget:
    """What is left of one rendering: time, characters in any one string, and characters in all that it ever makes."""

    def __init__(self, clock: Clock, seconds: float, max_chars: int) -> None:
        self._clock = clock
        self._until = clock.now() + seconds
        self._turns = 0
        self._max_chars = max_chars
        self._left = _MAX_ALL * max_chars

    def tick(self) -> None:
        """Raises BadRequest when time is up. Looks at the clock now and then: it is called for every operation."""
        self._turns += 1
        if self._turns % 64 == 0 and self._clock.now() > self._until:
            raise BadRequest("the chat template took too long; send a shorter conversation, or choose another template")

    def fits(self, n_chars: int) -> None:
        """Raises BadRequest for a string larger than any rendering may be."""
        if n_chars > self._max_chars:
            raise BadRequest(f"the chat template's output would exceed {self._max_chars:,} characters; send a shorter conversation")

    def spend(self, n_chars: int) -> None:
        """Counts a new string. A list counts eight characters an item. Raises BadRequest where it, or all together, are too large."""
        self.fits(n_chars)
        self._left -= n_chars
        if self._left < 0:
            raise BadRequest("the chat template makes too much text on its way to the output; send a shorter conversation")


class _Generation(Extension):
    """`{% generation %}` marks what the model said, for training. Here its body is simply rendered, in a scope of its own."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)


class _Generator(CodeGenerator):
    """`a ~ b` through the environment's own joining, which keeps marks."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - jinja2 calls it so
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")


class _Namespace(Namespace):
    """`namespace(...)`, whose names may not begin with an underscore."""

    def __setitem__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            raise TemplateError(f"a namespace cannot hold {name!r}")
        super().__setitem__(name, value)


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment that templates are compiled for. One serves all templates; the budget belongs to a rendering."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))
    code_generator_class = _Generator

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        """`now` is the wall clock that `strftime_now` reads."""
        # Without the optimizer, no expression of the template is computed at compile time, where no budget watches.
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[_Generation, loopcontrols], finalize=self._printed
        )
        self._local = local()
        self.concat = self.joined  # type: ignore[method-assign]
        kept = {name: self.filters[name] for name in _KEPT_FILTERS}
        self.filters = kept | self._own_filters()
        self.globals = {
            "range": self.globals["range"],
            "dict": dict,
            "namespace": _Namespace,
            "cycler": self.globals["cycler"],
            "joiner": self.globals["joiner"],
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: now().strftime(form),
        }

    @property
    def _budget(self) -> Budget:
        budget: Budget = self._local.budget
        return budget

    def render(self, template: Template, values: dict[str, Any], budget: Budget) -> str:
        """The output of a template compiled here, within a budget. Raises whatever the template raises."""
        self._local.budget = budget
        return self.joined(template.root_render_func(template.new_context(values)))

    def joined(self, parts: Iterable[object]) -> str:
        """All parts as one string, marks kept."""
        texts: list[str] = []
        n = 0
        for part in parts:
            texts.append(self._printed(part))
            n += len(texts[-1])
            self._budget.fits(n)
        self._budget.spend(n)
        return joined("", texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = self._budget
        budget.tick()
        if operator == "%" and isinstance(left, str):
            text = percent(left, right)
            budget.spend(len(text))
            return text
        if operator == "*":
            sized = next((x for x in (left, right) if isinstance(x, (str, list, tuple))), None)
            if sized is not None:
                times = right if sized is left else left
                budget.fits(_size(sized) * max(int(times), 0))
        if operator == "**" and (abs(left) > 1 << 32 or abs(right) > _MAX_POWER):
            raise BadRequest("the chat template raises a number to a power that no template needs")
        result = super().call_binop(context, operator, left, right)
        budget.spend(_size(result))
        return result

    def getattr(self, obj: Any, attribute: str) -> Any:
        # A method of a plain string would lose the marks of its arguments.
        return super().getattr(control(obj) if isinstance(obj, str) else obj, attribute)

    def getitem(self, obj: Any, argument: str | Any) -> Any:
        return super().getitem(control(obj) if isinstance(obj, str) else obj, argument)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        # Marked formats for itself, and reaches into no object.
        return None

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        blocks: Iterable[nodes.For | nodes.Macro | nodes.CallBlock] = tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))
        for block in blocks:
            tick = nodes.Filter(nodes.Const(None), "camshaft_tick", [], [], None, None)
            block.body.insert(0, nodes.ExprStmt(tick).set_lineno(block.lineno))
        tree.set_environment(self)
        return tree

    def _printed(self, value: Any) -> str:
        """The text that a value has in the output."""
        if isinstance(value, str):
            return value
        self._weigh(value)
        return str(value) if isinstance(value, Undefined) else shown(value)

    def _weigh(self, value: Any) -> None:
        """Raises BadRequest for a structure that would print larger than it is: lists may hold one another many times over."""
        n, waiting = 0, [value]
        while waiting:
            one = waiting.pop()
            n += 1
            if n > _MAX_ITEMS:
                raise BadRequest("the chat template prints a structure that is too large")
            if isinstance(one, Mapping):
                waiting.extend(one.values())
            elif isinstance(one, (list, tuple)):
                waiting.extend(one)

    def _own_filters(self) -> dict[str, Callable[..., Any]]:
        return {
            "camshaft_tick": lambda _: self._budget.tick(),
            "capitalize": lambda text: self._marked(text).capitalize(),
            "e": lambda text: Marked(_escaped(self._printed(text))),
            "escape": lambda text: Marked(_escaped(self._printed(text))),
            "format": lambda text, *values: percent(text, values),
            "indent": self._indent,
            "join": self._join,
            "list": self._list,
            "lower": lambda text: self._marked(text).lower(),
            "replace": self._replace,
            "safe": self._printed,
            "string": self._printed,
            "title": lambda text: self._marked(text).title(),
            "tojson": self._tojson,
            "trim": lambda text, chars=None: self._marked(text).strip(chars),
            "upper": lambda text: self._marked(text).upper(),
        }

    def _marked(self, value: Any) -> Marked:
        return control(self._printed(value))

    def _list(self, value: Iterable[Any]) -> list[Any]:
        items = list(value)
        self._budget.spend(_size(items))
        return items

    def _join(self, values: Iterable[Any], d: str = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            values = [self.getitem(value, attribute) for value in values]
        texts = [self._printed(value) for value in values]
        self._budget.spend(sum(map(len, texts)) + len(d) * len(texts))
        return joined(d, texts)

    def _replace(self, text: Any, old: str, new: str, count: int | None = None) -> str:
        marked = self._marked(text)
        self._budget.spend(len(marked) + (plain(marked).count(old) if old else len(marked) + 1) * len(new))
        return marked.replace(old, new, -1 if count is None else count)

    def _indent(self, text: Any, width: int | str = 4, first: bool = False, blank: bool = False) -> str:
        """Each line but the first, and but blank ones, with blanks or another string in front."""
        margin = " " * min(width, 1000) if isinstance(width, int) else width
        lines = (self._marked(text) + "\n").splitlines()
        self._budget.spend(sum(map(len, lines)) + len(lines) * (len(margin) + 1))
        put = [line if (i == 0 and not first) or not (line or blank) else control(margin) + line for i, line in enumerate(lines)]
        return joined("\n", put)

    def _tojson(
        self, value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        """JSON without HTML's escapes. Whose its characters are is not traced: all of them count as the user's."""
        self._weigh(value)
        if isinstance(indent, int):
            indent = min(indent, 16)
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        self._budget.spend(len(text))
        return Marked(text)


def _size(value: Any) -> int:
    """What a value weighs in a budget."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return _ITEM * len(value)
    return value.bit_length() if isinstance(value, int) else 0


def _raise_exception(message: str) -> None:
    raise TemplateError(plain(message))


def _escaped(text: str) -> str:
    for char, name in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&#34;"), ("'", "&#39;")):
        text = plain(text).replace(char, name)
    return text
