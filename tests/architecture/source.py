"""What the architecture tests look at: modules by path, and the files that git tracks."""

from __future__ import annotations

import subprocess
from collections.abc import Collection
from pathlib import Path

import pytest

from tests.servers.processes import ROOT

PACKAGE = ROOT / "pikkuflow"


def python_files(*folders: str) -> list[Path]:
    """Every Python file below the folders that git does not ignore, sorted; folders that are not there yet have none."""
    found = {path for folder in folders for path in (ROOT / folder).rglob("*.py")}
    return sorted(found - _ignored(found))


def _ignored(paths: Collection[Path]) -> set[Path]:
    """Those of the paths that git ignores: environments and results of a benchmark, say."""
    if not paths or not (ROOT / ".git").exists():
        return set()
    names = "\0".join(short(path) for path in paths)
    asked = subprocess.run(
        ["git", "check-ignore", "-z", "--stdin"], cwd=ROOT, check=False, input=names, capture_output=True, text=True
    )
    return {ROOT / name for name in asked.stdout.split("\0") if name}


def short(path: Path) -> str:
    """The path as a reader of the repository knows it."""
    return path.relative_to(ROOT).as_posix()


def tracked_files() -> list[Path]:
    """Every file that git tracks and that is there; skips the test where there is no checkout."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]
