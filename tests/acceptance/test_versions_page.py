"""The page about changing workflows shows code that does what it says."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.footprint import celery, marked, run
from tests.acceptance.test_readme import shown_module
from tests.servers.processes import ROOT


@dataclass(frozen=True)
class Shop:
    """A folder with one release of the page's application, and its database."""

    folder: Path

    def release(self, number: int) -> None:
        """Deploy it."""
        code = shown_module(ROOT / "docs" / "versions.md", f"release {number}: shop.py")
        (self.folder / "shop.py").write_text(code)

    def flow(self, *words: str) -> str:
        """A command's output."""
        return self._run(*celery("shop", "flow", *words))

    def shown(self, *words: str) -> Any:
        """A command's document."""
        return json.loads(self.flow(*words, "--json"))

    def start(self, run_id: str) -> None:
        """An order that is worked here until it waits."""
        self._run(sys.executable, "-c", f"import shop; shop.order.using(run_id={run_id!r}).run_inline(1)")

    def steps(self, run_id: str) -> list[str]:
        """What a run's history has beside its gates."""
        names = [step["name"] for step in self.shown("show", run_id)["steps"]]
        return [name for name in names if not name.startswith("__workflow")]

    def _run(self, *argv: str) -> str:
        return run(*argv, cwd=self.folder, environ=marked({"PYTHONDONTWRITEBYTECODE": "1"})).stdout


def test_the_page_about_versions_shows_what_happens(tmp_path: Path) -> None:
    """docs/versions.md: two orders of the first release meet the second, and one of the second the first (D17, scenario 32)."""
    shop = Shop(tmp_path)
    shop.release(1)
    shop.flow("db", "upgrade")
    shop.start("charged")
    shop.start("waiting")
    shop.flow("resume", "charged", "--reason", "stock")
    shop.release(2)
    shop.start("fresh")
    shop.flow("resume", "waiting", "--reason", "stock")
    shop.flow("resume", "fresh", "--reason", "stock")
    assert shop.steps("charged") == ["charge"]
    assert shop.steps("waiting") == shop.steps("fresh") == ["__patch:receipts", "pay", "receipt"]
    assert sorted(one["openRuns"] for one in shop.shown("versions", "shop.order")) == [1, 2]

    shop.release(1)
    shop.flow("resume", "fresh", "--reason", "courier")
    stopped = shop.shown("show", "fresh")
    assert stopped["code"] == "VERSION_CONFLICT"
    assert "expected patch 'receipts'" in stopped["error"]["message"]

    shop.release(2)
    shop.flow("resume", "charged", "--reason", "courier")
    ended = shop.shown("show", "charged")
    assert (ended["status"], ended["output"]) == ("completed", ["charged 1"])
