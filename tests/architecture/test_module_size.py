"""A module that one cannot read at a sitting has two ideas in it (style 4.1, 6)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.architecture.source import python_files, short

MODULE_LINES = 400
FUNCTION_LINES = 50
FOLDERS = ("pikkuflow", "migrations", "tests", "examples", "benchmarks")
VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "base", "core", "misc"})


def _span(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_module_is_longer_than_400_lines() -> None:
    """The hard ceiling of style 4.1, for the package and its tests alike."""
    sizes = {short(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files(*FOLDERS)}
    assert {name: size for name, size in sizes.items() if size > MODULE_LINES} == {}


@pytest.mark.parametrize("folder", ["pikkuflow", "migrations"])
def test_no_function_is_longer_than_50_lines(folder: str) -> None:
    """Its docstring counts: one that long belongs to the module."""
    long = [
        f"{short(path)}:{node.lineno} {node.name} has {_span(node)} lines"
        for path in python_files(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _span(node) > FUNCTION_LINES
    ]
    assert long == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    """Modules are named after a noun, a verb or a product (style 4.4)."""

    def words(path: Path) -> set[str]:
        return set(path.stem.split("_")) if path.stem != "__init__" else {path.parent.name}

    assert [short(path) for path in python_files("pikkuflow") if words(path) & VAGUE_NAMES] == []
