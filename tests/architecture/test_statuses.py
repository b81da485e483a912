"""Statuses are members of an enum everywhere but where text comes in or goes out (style 5.1)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from pikkuflow.domain.status import RunStatus, StepStatus
from tests.architecture.source import python_files, short

STATUSES = {str(status) for status in (*RunStatus, *StepStatus)}
FLOORS = (
    "pikkuflow/domain",
    "pikkuflow/replay",
    "pikkuflow/engine",
    "pikkuflow/adapters/sql",
    "pikkuflow/adapters/memory",
)


def _compared_or_assigned(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            yield from (node.left, *node.comparators)
        elif isinstance(node, ast.keyword) and node.arg and node.arg.endswith("status"):
            yield node.value


def _literals(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        f"{short(path)}:{part.lineno} {part.value!r}"
        for expression in _compared_or_assigned(tree)
        for part in ast.walk(expression)
        if isinstance(part, ast.Constant) and part.value in STATUSES
    ]


def test_no_status_is_compared_or_written_as_text() -> None:
    """A misspelt text compares unequal in silence; a misspelt member does not start."""
    assert [line for path in python_files(*FLOORS) for line in _literals(path)] == []
