"""The floors of design 5 hold, and there is no way round them."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
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


def _lazy_imports(path: Path) -> list[str]:
    found = []
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in (child for child in ast.walk(function) if isinstance(child, ast.Import | ast.ImportFrom)):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found += [
                f"{short(path)}:{node.lineno} {name}" for name in modules if name.split(".", 1)[0] == PACKAGE.name
            ]
    return found


def test_no_function_imports_from_the_package() -> None:
    """An import inside a function hides an edge, and usually a cycle."""
    assert [line for path in python_files("pikkuflow") for line in _lazy_imports(path)] == []


def test_no_import_is_for_type_checkers_only() -> None:
    """TYPE_CHECKING would be a second, unwatched set of imports."""
    guilty = [short(path) for path in python_files("pikkuflow") if "TYPE_CHECKING" in path.read_text(encoding="utf-8")]
    assert guilty == []
