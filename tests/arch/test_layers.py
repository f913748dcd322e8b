"""Imports point down only, and within a layer they make no cycle."""

from __future__ import annotations

import ast
from pathlib import Path

import camshaft

SRC = Path(camshaft.__file__).parent

# The number is the layer; "2a" and "2b" are decisions and arithmetic, with no edge between them.
LAYERS = {
    "types": "0", "errors": "0", "config": "0", "clock": "0",
    "tokenizer": "1", "formats": "1", "schema": "1", "_native": "1", "observe": "1",
    "kv": "2a", "sched": "2a", "spec": "2a", "sample": "2a",
    "runners": "2b", "models": "2b",
    "engine": "3",
    "cluster": "4",
    "gateway": "5", "autoscale": "5",
    "api": "6", "bench": "6", "sim": "6",
    "cli": "7", "dashboard": "7",
}  # fmt: skip


def package_of(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(("camshaft", *parts)).removesuffix(".__init__")


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports anywhere, functions included; type-checking blocks count too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "camshaft"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "camshaft":
            found |= {f"{node.module}.{a.name}" for a in node.names}
    return found


FILES = sorted(SRC.rglob("*.py"))


def test_every_package_has_a_layer() -> None:
    unknown = {package_of(f) for f in FILES} - set(LAYERS) - {"__init__", "__main__"}
    assert not unknown, f"give these a layer in this test and in the design: {sorted(unknown)}"


def test_imports_point_down_only() -> None:
    wrong = []
    for path in FILES:
        here = package_of(path)
        if here in ("__init__", "__main__"):
            continue
        for name in imports_of(path):
            there = name.split(".")[1] if "." in name else "__init__"
            if there == "__init__" or there == here or there not in LAYERS:
                continue
            mine, theirs = LAYERS[here], LAYERS[there]
            if theirs[0] > mine[0] or (mine[0] == theirs[0] == "2" and mine != theirs):
                wrong.append(f"{module_of(path)} (layer {mine}) imports {name} (layer {theirs})")
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles() -> None:
    modules = {module_of(f) for f in FILES}
    graph: dict[str, set[str]] = {}
    for path in FILES:
        me = module_of(path)
        targets = {n if n in modules else n.rpartition(".")[0] for n in imports_of(path)}
        graph[me] = {t for t in targets if t in modules and t != me and t != "camshaft"}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, " -> ".join((*trail[trail.index(module) :], module))
        if module not in done:
            for target in sorted(graph[module]):
                visit(target, (*trail, module))
            done.add(module)

    for module in sorted(graph):
        visit(module, ())


def test_layer_zero_needs_only_the_standard_library_and_msgspec() -> None:
    import sys

    for name in ("types", "errors", "config", "clock"):
        for node in ast.walk(ast.parse((SRC / f"{name}.py").read_text())):
            roots: list[str] = []
            if isinstance(node, ast.Import):
                roots = [a.name for a in node.names]
            elif isinstance(node, ast.ImportFrom):
                roots = [node.module or ""]
            for root in (r.split(".")[0] for r in roots):
                assert root in sys.stdlib_module_names or root in ("msgspec", "camshaft"), f"{name}.py imports {root}"


def test_decisions_never_import_numpy() -> None:
    """kv and sched decide in ints; a numpy import there is arithmetic in the wrong place."""
    for path in FILES:
        if package_of(path) in ("kv", "sched"):
            assert "import numpy" not in path.read_text(), path
