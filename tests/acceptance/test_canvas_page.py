"""The page about canvas shows code that does what it says."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.acceptance.footprint import celery, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT


def test_the_page_about_canvas_runs_as_it_stands(tmp_path: Path) -> None:
    """Copied out as it is: a chain by itself, a chord in a workflow."""
    (tmp_path / "shop.py").write_text(shown_module(ROOT / "docs" / "canvas.md"))
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    assert run(sys.executable, "shop.py", cwd=tmp_path, environ=environ).stdout == "three pages: 30\ntotal: 60\n"
