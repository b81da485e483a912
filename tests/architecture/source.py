"""What the architecture tests look at: modules by path, and the files that git tracks."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.servers.processes import ROOT

PACKAGE = ROOT / "pikkuflow"


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the folders, sorted; folders that are not there yet have none."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def short(path: Path) -> str:
    """The path as a reader of the repository knows it."""
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """Every file that git tracks and that is there; skips the test where there is no checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]
