"""The floors of design 5 hold, and there is no way round them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.architecture.source import PACKAGE, python_files, short
from tests.servers.processes import ROOT


def test_every_import_contract_is_kept() -> None:
    """Runs import-linter with the contracts of pyproject.toml."""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-logo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _first_party(node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    """The imports below the node that name the package."""

    def names(found: ast.Import | ast.ImportFrom) -> list[str]:
        return [found.module or ""] if isinstance(found, ast.ImportFrom) else [alias.name for alias in found.names]

    return [
        found
        for found in ast.walk(node)
        if isinstance(found, ast.Import | ast.ImportFrom)
        and any(name.split(".", 1)[0] == PACKAGE.name for name in names(found))
    ]


def _where(path: Path, kind: Callable[[ast.AST], bool]) -> list[str]:
    """Where first-party imports stand below a node of that kind."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [f"{short(path)}:{found.lineno}" for node in ast.walk(tree) if kind(node) for found in _first_party(node)]


def test_no_function_imports_from_the_package() -> None:
    """An import inside a function hides an edge, and usually a cycle."""

    def is_function(node: ast.AST) -> bool:
        return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)

    assert [line for path in python_files("pikkuflow") for line in _where(path, is_function)] == []


def test_no_import_from_the_package_is_for_type_checkers_only() -> None:
    """TYPE_CHECKING would be a second, unwatched set of imports."""

    def is_for_checkers(node: ast.AST) -> bool:
        return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)

    assert [line for path in python_files("pikkuflow") for line in _where(path, is_for_checkers)] == []
