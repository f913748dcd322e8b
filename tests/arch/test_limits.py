"""The limits of style that hold because they are executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import camshaft

SRC = Path(camshaft.__file__).parent
ROOT = Path(__file__).parents[2]
PYTHON = sorted(SRC.rglob("*.py"))
NATIVE = sorted(p for p in (ROOT / "native").rglob("*") if p.suffix in (".cpp", ".h", ".inl"))
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef

# Broad handlers stand in three kinds of place only: around the engine's step, in the API's handler, in main.
BROAD_EXCEPT_ALLOWED = {"engine/engine.py", "engine/loop.py", "api/failure.py", "cli/main.py"}
# And around a launcher, which may be anything: a fault of it must cost one try, not the task that would start the next.
BROAD_EXCEPT_ALLOWED |= {"cluster/replica.py"}


def definitions(kind: type | tuple[type, ...]) -> Iterator[tuple[Path, ast.AST]]:
    for path in PYTHON:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kind):
                yield path, node


def test_files_stay_small() -> None:
    for path in (*PYTHON, *NATIVE):
        assert len(path.read_text().splitlines()) <= 500, path


def test_functions_stay_small() -> None:
    for path, node in definitions((ast.FunctionDef, ast.AsyncFunctionDef)):
        length = (node.end_lineno or 0) - node.lineno + 1  # type: ignore[attr-defined]
        assert length <= 60, f"{path}: {node.name} has {length} lines"  # type: ignore[attr-defined]


def test_functions_take_few_arguments() -> None:
    for path, node in definitions((ast.FunctionDef, ast.AsyncFunctionDef)):
        args = node.args  # type: ignore[attr-defined]
        names = [a.arg for a in (*args.posonlyargs, *args.args, *args.kwonlyargs) if a.arg not in ("self", "cls")]
        assert len(names) <= 6, f"{path}: {node.name} takes {len(names)}"  # type: ignore[attr-defined]
        assert args.kwarg is None, f"{path}: {node.name} takes **{args.kwarg.arg}"  # type: ignore[attr-defined]


def test_classes_hold_few_attributes() -> None:
    for path, node in definitions(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        if any("frozen=True" in ast.unparse(part) for part in (*node.decorator_list, *node.keywords)):
            continue
        names = {
            t.attr
            for f in ast.walk(node)
            if isinstance(f, FUNCTION)
            for s in ast.walk(f)
            if isinstance(s, (ast.Assign, ast.AnnAssign))
            for t in (s.targets if isinstance(s, ast.Assign) else [s.target])
            if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) and t.value.id == "self"
        }
        assert len(names) <= 15, f"{path}: {node.name} has {len(names)}: {sorted(names)}"


def test_print_is_for_the_command_line_only() -> None:
    for path, node in definitions(ast.Call):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            assert path.relative_to(SRC).parts[0] == "cli", path


def test_broad_excepts_stand_in_three_places() -> None:
    for path, node in definitions(ast.ExceptHandler):
        assert isinstance(node, ast.ExceptHandler)
        broad = node.type is None or ast.unparse(node.type) in ("Exception", "BaseException")
        if broad:
            assert str(path.relative_to(SRC)) in BROAD_EXCEPT_ALLOWED, f"{path}:{node.lineno}"


def test_no_hasattr_and_no_unfinished_business() -> None:
    for path in PYTHON:
        text = path.read_text()
        assert not re.search(r"\bhasattr\(|NotImplementedError|\b(TODO|FIXME|XXX)\b", text), path


def test_python_headers_stay_in_bind() -> None:
    for path in NATIVE:
        if "bind" not in path.parts:
            assert not re.search(r"#include\s*[<\"](Python\.h|nanobind)", path.read_text()), path


def test_the_engines_settings_stay_few_and_documented() -> None:
    from camshaft.config import EngineConfig, ServerConfig, docs

    assert len(docs(EngineConfig)) <= 60
    for section in (EngineConfig, ServerConfig):
        assert all(d.help for d in docs(section).values())
