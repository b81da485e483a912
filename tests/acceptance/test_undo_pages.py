"""The pages about undoing and calling off show code that does what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.acceptance.footprint import celery, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT

PAGES = {
    "compensation.md": ["nothing to refund", "released shelf-42", "compensated after: "],
    "cancel.md": ["3", "released shelf-2", "compensated because out of stock"],
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_about_undoing_runs_as_it_stands(tmp_path: Path, page: str) -> None:
    """Copied out as it is, and each line that it prints is the one that the page names."""
    (tmp_path / "shop.py").write_text(shown_module(ROOT / "docs" / page))
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    shown = run(sys.executable, "shop.py", cwd=tmp_path, environ=environ).stdout.splitlines()
    assert len(shown) == len(PAGES[page])
    for line, beginning in zip(shown, PAGES[page], strict=True):
        assert line.startswith(beginning)


def test_a_run_is_called_off_from_the_shell(tmp_path: Path) -> None:
    """``flow cancel``: of a run that has ended it is an error, and nothing is changed (exit code 1)."""
    (tmp_path / "shop.py").write_text(shown_module(ROOT / "docs" / "cancel.md"))
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    start = celery("shop", "flow", "start", "shop.order", "[1, true]", "--run-id", "order-1", "--inline")
    run(*start, cwd=tmp_path, environ=environ)
    late = run(*celery("shop", "flow", "cancel", "order-1"), cwd=tmp_path, environ=environ, exits=1)
    assert "RUN_SETTLED" in late.stderr
    assert "completed" in late.stderr
