"""The page about graphs shows code and a file that do what it says."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.acceptance.footprint import celery, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT

PAGE = ROOT / "docs" / "graphs.md"


def test_the_page_about_graphs_runs_as_it_stands(tmp_path: Path) -> None:
    """Copied out as it is: the graph in Python prints its line, and the one in the file runs on the same tasks."""
    (tmp_path / "shop.py").write_text(shown_module(PAGE))
    (file,) = re.findall(r"```yaml\n(# refund\.yaml\n.*?)```", PAGE.read_text(), flags=re.DOTALL)
    (tmp_path / "refund.yaml").write_text(file)
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    run(*celery("shop", "flow", "db", "upgrade"), cwd=tmp_path, environ=environ)
    shown = run(sys.executable, "shop.py", cwd=tmp_path, environ=environ).stdout
    assert shown == "completed Parcel for Ada: [tea] [cup]\n"

    (drawn,) = re.findall(r"\$ celery -A shop (flow graph shop\.order)\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert run(*celery("shop", *drawn[0].split()), cwd=tmp_path, environ=environ).stdout == drawn[1]

    script = (
        "from shop import pikku; refund = pikku.graph_file('refund.yaml'); "
        "print(refund.run_inline(name='Bob', total=200).results())"
    )
    shown = run(sys.executable, "-c", script, cwd=tmp_path, environ=environ).stdout
    assert shown == "{'look': 200, 'wait': None, 'pay': 'Refund for Bob: refund'}\n"
