"""The report of the benchmarks, by made-up figures: verdicts, and what it publishes."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.jobs import JOBS
from benchmarks.report import Rounds, publish, ratio_table
from benchmarks.targets import TARGETS, Target

_PAGE = "before\n<!-- figures: benchmarks/report.py --publish -->\nold figures\n<!-- end of figures -->\nafter\n"


def _line(name: str, number: int, results: dict[str, dict[str, float]]) -> dict[str, Any]:
    peer, _, mode = name.partition("/")
    line = {"peer": peer, "mode": mode, "name": name, "round": number}
    return line | {"versions": {"python": "3.11"}, "results": results}


def _rounds(ours: list[dict[str, dict[str, float]]], theirs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    lines = [_line("pikkuflow/place", number, one) for number, one in enumerate(ours)]
    lines += [_line("dbos/queue", number, one) for number, one in enumerate(theirs)]
    return {"machine": {"cores": 2}, "lines": lines}


def _row(table: str, title: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.startswith(f"| {title} "))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize(
    ("values", "is_ceiling", "verdict"),
    [
        ([1.9], False, "missed"),
        ([2.0], False, "must"),
        ([4.5], False, "aim"),
        ([2.1], True, "missed"),
        ([1.0, 2.0, 9.0], False, "must"),
    ],
)
def test_a_ratio_is_judged_by_its_median(values: list[float], is_ceiling: bool, verdict: str) -> None:  # noqa: FBT001 - a case
    """The gates of the benchmarks: floors for speed, ceilings for time."""
    aim = 0.5 if is_ceiling else 4
    target = Target(title="t", ours="a", theirs="b", workload="w", figure="f", must=2, aim=aim, is_ceiling=is_ceiling)
    assert target.verdict(values) == verdict


def test_a_lost_step_in_one_round_of_five_is_seen() -> None:
    """What may never happen is judged over all rounds, and kills are counted over all of them."""
    good = {"crash": {"recover_s": 1.0, "kills": 4, "lost": 0, "unfinished": 0, "duplicates": 8}}
    bad = {"crash": {"recover_s": 1.0, "kills": 4, "lost": 1, "unfinished": 0, "duplicates": 9}}
    table = ratio_table(Rounds.of(_rounds([good] * 4 + [bad], [])))
    assert _row(table, "W6 kills in all")[1::3] == ["20", "must"]
    assert _row(table, "W6 lost steps in all")[1::3] == ["1", "missed"]
    assert _row(table, "W6 unfinished runs in all")[1::3] == ["0", "must"]
    assert _row(table, "W6 steps worked twice, worst kill")[1::3] == ["9", "missed"]


def test_a_ratio_is_of_one_round() -> None:
    """A round that only one of the two was measured in says nothing."""
    ours = [{"chain": {"runs_per_s": speed}} for speed in (100.0, 600.0, 50.0)]
    theirs = [{"chain": {"runs_per_s": speed}} for speed in (50.0, 100.0)]
    row = _row(ratio_table(Rounds.of(_rounds(ours, theirs))), "W1 in place / DBOS queue")
    assert row[1:5] == ["4 (2-6)", ">= 2.5", ">= 4", "aim"]


def test_everything_that_is_promised_is_measured() -> None:
    """Each target names jobs that run its workload, so that no row is missing from the table."""
    measured = {(job.name, workload) for job in JOBS for workload in job.workloads.split(",")}
    wanted = {(name, target.workload) for target in TARGETS for name in (target.ours, target.theirs) if name}
    assert wanted - measured == set()


def test_publishing_replaces_the_figures_of_the_page(tmp_path: Path) -> None:
    """The page keeps its text, gets table and picture, and the JSON is kept beside; again changes nothing."""
    page, published, source = (
        tmp_path / "performance.md",
        tmp_path / "results" / "published.json",
        tmp_path / "last.json",
    )
    page.write_text(_PAGE)
    result = _rounds([{"chain": {"runs_per_s": 400.0}}], [{"chain": {"runs_per_s": 100.0}}])
    source.write_text(json.dumps(result))
    publish(source, Rounds.of(result), page=page, published=published)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old figures" not in text
    assert _row(text, "W1 in place / DBOS queue")[1] == "4"
    assert json.loads(published.read_text()) == result
    picture = ET.fromstring(page.with_name("performance.svg").read_text())  # noqa: S314 - ours, written just now
    assert "4x" in [element.text for element in picture.iter() if element.text]
    publish(published, Rounds.of(result), page=page, published=published)
    assert page.read_text() == text


def test_the_rounds_judge_by_the_median_unless_they_say_otherwise() -> None:
    """One bad round of a shared machine decides nothing."""
    assert {target.over_rounds for target in TARGETS if target.theirs} == {statistics.median}
