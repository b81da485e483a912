"""What the README and the quickstart show is what happens."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.acceptance.footprint import celery, marked, run
from tests.servers.processes import ROOT

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "examples" / "README.md"])


def shown_module(page: Path, name: str = "shop.py") -> str:
    """The code block of a page that begins with the name of a file."""
    (code,) = re.findall(rf"```python\n(# {re.escape(name)}\n.*?)```", page.read_text(), flags=re.DOTALL)
    return str(code)


def test_the_readmes_workflow_has_some_twenty_lines_and_runs(tmp_path: Path) -> None:
    """Copied out of the page as it is; run inline by the command line, then looked at."""
    code = shown_module(ROOT / "README.md")
    assert len(code.split("@app.task", 1)[1].splitlines()) <= 20
    (tmp_path / "shop.py").write_text(code)
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    start = celery("shop", "flow", "start", "shop.order", "[42]", "--run-id", "order-42", "--inline", "--json")
    started = json.loads(run(*start, cwd=tmp_path, environ=environ).stdout)
    assert started["output"] == {"paid": "payment-42", "labels": ["label-tea", "label-cup"]}
    shown = run(*celery("shop", "flow", "show", "order-42"), cwd=tmp_path, environ=environ).stdout
    assert "charge card" in shown
    assert "cool off" in shown


def test_the_quickstarts_workflow_runs(tmp_path: Path) -> None:
    """With its two long waits made short."""
    code = (
        shown_module(ROOT / "docs" / "quickstart.md")
        .replace("time.sleep(10)", "time.sleep(0)")
        .replace('"5s"', '"100ms"')
    )
    (tmp_path / "shop.py").write_text(code)
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    script = "from shop import order; print(order.run_inline(42).result())"
    shown = run(sys.executable, "-c", script, cwd=tmp_path, environ=environ).stdout
    assert re.search(r"'paid': 'payment-42, key [0-9a-f-]{36}'", shown), shown
    assert "parcel-42" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """Every relative link of a page names a file or folder of the repository."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
