"""Medians, spread and ratios of what was measured: ``python -m benchmarks.report [FILE] [--publish]``."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.picture import Bar, bars
from benchmarks.targets import TARGETS, Target

_HERE: Final = Path(__file__).resolve().parent
_PUBLISHED: Final = _HERE / "results" / "published.json"
_PAGE: Final = _HERE.parent / "docs" / "performance.md"
_BEGIN, _END = "<!-- figures: benchmarks/report.py --publish -->", "<!-- end of figures -->"

_FIGURES: Final = (
    ("W1 runs/s", "chain", "runs_per_s"),
    ("W1 CPU ms/run", "chain", "cpu_ms"),
    ("W1 p50 s", "chain", "p50_s"),
    ("W1 p99 s", "chain", "p99_s"),
    ("W2 ms/run", "latency", "run_ms"),
    ("W2 CPU ms/run", "latency", "cpu_ms"),
    ("W3 s", "fanout", "seconds"),
    ("W3 chunked s", "fanout", "chunked_seconds"),
    ("W4 s", "history", "seconds"),
    ("W4 growth", "history", "growth"),
    ("W4b s", "replay", "seconds"),
    ("W5 starts/s", "start", "starts_per_s"),
    ("W5 batch/s", "start", "batch_starts_per_s"),
    ("W6 s", "crash", "recover_s"),
    ("W6 dup", "crash", "duplicates"),
    ("W6 lost", "crash", "lost"),
    ("W6 open", "crash", "unfinished"),
    ("commits/step", "cost", "commits_per_step"),
    ("fsyncs/step", "cost", "fsyncs_per_step"),
    ("commits/run", "cost", "commits_per_run"),
)

_COUNTED: Final = (
    "What a step costs in round trips, commits, fsyncs and messages, and what an idle worker asks of Redis and of the database, "
    "is counted by `tests/integration/counts`."
)

Series = dict[int, float]
"""A figure by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """Every figure of every round."""

    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    series: Mapping[tuple[str, str, str], Series]

    @classmethod
    def of(cls, result: Mapping[str, Any]) -> Rounds:
        """From what ``run.py`` wrote."""
        series: dict[tuple[str, str, str], Series] = {}
        versions: dict[str, str] = {}
        for line in result["lines"]:
            versions |= {f"{line['peer']}: {name}": version for name, version in line["versions"].items()}
            for workload, figures in line["results"].items():
                for figure, value in figures.items():
                    if value is not None:
                        series.setdefault((line["name"], workload, figure), {})[line["round"]] = value
        return cls(machine=result["machine"], versions=versions, series=series)

    @property
    def names(self) -> list[str]:
        """What was measured, in the order in which it was first seen."""
        return list(dict.fromkeys(name for name, _, _ in self.series))

    def values(self, target: Target) -> list[float]:
        """Ours over theirs, within each round that has both; ours alone where it is compared with nobody."""
        ours = self.series.get((target.ours, target.workload, target.figure), {})
        if target.theirs is None:
            return list(ours.values())
        theirs = self.series.get((target.theirs, target.workload, target.their_figure or target.figure), {})
        return [value / theirs[number] for number, value in ours.items() if theirs.get(number)]

    def cpu_ratios(self, target: Target) -> list[float]:
        """What ours uses of the machine over what theirs does, for the same work."""
        return [] if target.theirs is None else self.values(replace(target, figure="cpu_ms", their_figure=None))


def short(value: float) -> str:
    """Three digits that mean something."""
    if value == 0:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def spread(values: Sequence[float]) -> str:
    """The median, with the least and the largest."""
    middle = short(statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({short(min(values))}-{short(max(values))})"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns stand below each other as text, too."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) + " |"

    return "\n".join([line(head), line(["-" * width for width in widths]), *map(line, rows)])


def ratio_table(rounds: Rounds) -> str:
    """Each promise, and what was measured."""
    rows = []
    for target in TARGETS:
        if values := rounds.values(target):
            relation = "<=" if target.is_ceiling else ">="
            limits = [f"{relation} {limit:g}" if limit is not None else "" for limit in (target.must, target.aim)]
            used = rounds.cpu_ratios(target)
            found = spread(values) if target.over_rounds is statistics.median else short(target.over_rounds(values))
            rows.append([target.title, found, *limits, target.verdict(values), spread(used) if used else ""])
    return markdown(["ours / theirs", "ratio", "must", "aim", "reached", "CPU, ours / theirs"], rows)


def figure_table(rounds: Rounds) -> str:
    """Every figure by who was measured."""
    shown = [one for one in _FIGURES if any((name, *one[1:]) in rounds.series for name in rounds.names)]
    rows = []
    for name in rounds.names:
        cells = [rounds.series.get((name, workload, figure)) for _, workload, figure in shown]
        if any(cells):
            rows.append([name, *("" if cell is None else spread(list(cell.values())) for cell in cells)])
    return markdown(["", *(title for title, _, _ in shown)], rows)


def table_of(rounds: Rounds) -> str:
    """Both tables: ratios first, because only they mean something elsewhere."""
    return f"\n{ratio_table(rounds)}\n\n{_COUNTED}\n\n{figure_table(rounds)}"


def compared(rounds: Rounds) -> list[Bar]:
    """Each comparison that was measured, as times faster."""
    found = [(target, rounds.values(target)) for target in TARGETS if target.theirs is not None]
    medians = [(target, statistics.median(ratios)) for target, ratios in found if ratios]
    return [Bar(title=one.title, times_faster=1 / ratio if one.is_ceiling else ratio) for one, ratio in medians]


def publish(source: Path, rounds: Rounds, *, page: Path = _PAGE, published: Path = _PUBLISHED) -> None:
    """Make these the figures that the repository shows: the JSON, the page's tables and the picture beside it."""
    if source != published:
        published.parent.mkdir(exist_ok=True)
        shutil.copyfile(source, published)
    page.with_name("performance.svg").write_text(bars(compared(rounds)))
    machine = ", ".join(f"{key} {value}" for key, value in rounds.machine.items())
    versions = ", ".join(f"{name} {version}" for name, version in sorted(rounds.versions.items()))
    picture = "![Times faster than others](performance.svg)"
    figures = f"{_BEGIN}\n\n{picture}\n{table_of(rounds)}\n\nMachine: {machine}.\n\nVersions: {versions}.\n\n{_END}"
    text = page.read_text()
    page.write_text(text[: text.index(_BEGIN)] + figures + text[text.index(_END) + len(_END) :])


def main() -> None:
    """Print the tables of a result, and publish it when asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, nargs="?", default=_HERE / "results" / "last.json")
    parser.add_argument(
        "--publish", action="store_true", help="into docs/performance.md, its picture and published.json"
    )
    options = parser.parse_args()
    rounds = Rounds.of(json.loads(options.file.read_text()))
    print(table_of(rounds))
    if options.publish:
        publish(options.file, rounds)


if __name__ == "__main__":
    main()
