"""``pikkuflow demo``: the first thing that a stranger sees (issue A, "Command line")."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.acceptance.footprint import left_behind, marked, run


def test_the_demo_shows_a_run_that_survives_its_worker(tmp_path: Path) -> None:
    """It exits 0, shows the lost attempt and who took over, every effect once, what to type next; no process stays."""
    environ = marked({"TMPDIR": str(tmp_path)})
    shown = run(Path(sys.executable).parent / "pikkuflow", "demo", cwd=tmp_path, environ=environ, seconds=150).stdout
    assert re.search(r"pack +1 +lost: its process was killed +\d+", shown), shown
    assert re.search(r"pack +2 +succeeded +\d+", shown), shown
    assert re.search(r"charge card +1 +failed: .*the bank is busy", shown), shown
    assert "each exactly once, though its worker was killed" in shown
    assert len(re.findall("effect: ", shown)) == 7
    assert "What to type next" in shown
    assert left_behind(environ) == []
    # Python's multiprocessing leaves an empty folder where it was killed.
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("pymp-")] == []
