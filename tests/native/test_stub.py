"""The stub says what the module has: names, methods and the order of their arguments."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import camshaft
from camshaft import _native

STUB = ast.parse((Path(camshaft.__file__).parent / "_native.pyi").read_text())


def public(names: list[str]) -> set[str]:
    return {n for n in names if not n.startswith("_")}


def arguments(function: ast.FunctionDef) -> list[str]:
    a = function.args
    return [x.arg for x in (*a.posonlyargs, *a.args, *a.kwonlyargs) if x.arg != "self"]


def test_module_and_stub_have_the_same_names() -> None:
    stub = {n.name for n in STUB.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert public(dir(_native)) == stub


def test_methods_take_the_arguments_of_the_stub() -> None:
    for cls in (n for n in STUB.body if isinstance(n, ast.ClassDef) and n.name != "Part"):
        native = getattr(_native, cls.name)
        methods = [f for f in cls.body if isinstance(f, ast.FunctionDef)]
        assert public(dir(native)) == {f.name for f in methods if f.name != "__init__"}
        for f in methods:
            signature = getattr(native, f.name).__doc__.splitlines()[0]
            assert re.findall(r"(\w+): ", signature) == arguments(f), signature


def test_part_is_a_named_tuple_with_the_fields_of_the_stub() -> None:
    (part,) = (n for n in STUB.body if isinstance(n, ast.ClassDef) and n.name == "Part")
    assert list(_native.Part._fields) == [f.target.id for f in part.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
