"""``docs/acceptance.md`` says what became of every identifier of the specification's acceptance list; the tests must agree."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache

import pytest

from tests.servers.processes import ROOT

SIZES = (18, 4, 17, 10, 6, 17, 10, 5, 17, 13, 41, 21, 18, 7, 9, 19, 18, 3)
"""How many items each section of the list has, from 13.1 (T1) to 13.18 (T18)."""
IDENTIFIERS = [
    *(f"T{section}.{number}" for section, size in enumerate(SIZES, 1) for number in range(1, size + 1)),
    *(f"V{number}" for number in range(1, 11)),
    *(f"C{number}" for number in range(1, 8)),
]
_ROW = re.compile(r"^\| ([TVC][0-9.]+) \| (tested|n/a|later: [B-F]) \|(.*)\|$", flags=re.MULTILINE)
ROWS = _ROW.findall((ROOT / "docs" / "acceptance.md").read_text(encoding="utf-8"))


@cache
def _tests_of(path: str) -> dict[str, str]:
    """The source of each test of a file, decorators and docstring included."""
    source = (ROOT / path).read_text(encoding="utf-8")
    lines = source.splitlines()
    return {
        node.name: "\n".join(lines[min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1 : node.end_lineno])
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_identifier_is_in_the_table_once() -> None:
    """None forgotten, none invented, none twice."""
    assert Counter(identifier for identifier, _, _ in ROWS) == Counter(IDENTIFIERS)


@pytest.mark.parametrize(
    ("identifier", "where"), [(identifier, where) for identifier, state, where in ROWS if state == "tested"]
)
def test_what_is_called_tested_is_a_test_that_says_so(identifier: str, where: str) -> None:
    """Each test named in a row exists, and its source names the row's identifier (``V2`` also as ``V2a``)."""
    named = re.findall(r"`([^`:]+)::([^`]+)`", where)
    assert named
    for path, test in named:
        source = _tests_of(path).get(test)
        assert source is not None, f"{path} has no {test}"
        assert re.search(rf"\b{re.escape(identifier)}[a-d]?\b(?!\.?[0-9])", source), (
            f"{test} does not name {identifier}"
        )


GRAPHS = re.compile(r"T13\.\d+|T14\.\d+|T8\.3|T15\.1|T1\.6|V2|V3|V4|V6|V10")
"""What issue E promises of graphs in place and dispatched. Of V8 both kinds are in one test."""
MAKES_NO_RUN = {"T13.3"}
_PLACES = re.compile(r"^def test_\w+\([^)]*\b(stage|place|ending|leaves|dispatch|options): ", flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("identifier", "where"),
    [
        (one, where)
        for one, state, where in ROWS
        if state == "tested" and GRAPHS.fullmatch(one) and one not in MAKES_NO_RUN
    ],
)
def test_what_is_promised_of_graphs_is_asked_in_place_and_dispatched(identifier: str, where: str) -> None:
    """One test of the row at least is given the place where the steps are worked."""
    named = re.findall(r"`([^`:]+)::([^`]+)`", where)
    assert any(_PLACES.search(_tests_of(path)[test]) for path, test in named), identifier


def test_what_does_not_apply_says_why() -> None:
    """A reason, with the decision it follows from."""
    reasons = [(identifier, why) for identifier, state, why in ROWS if state == "n/a"]
    assert [identifier for identifier, why in reasons if not re.search(r"\bD\d+\b|design \d", why)] == []


# --- scenarios, and the tables of docs/guarantees.md --------------------------------------------------------------------

_SCENARIO = re.compile(r"^\| (\d\d)(?:, first half)? \|.*?\|(.*)\|$", flags=re.MULTILINE)
SCENARIOS = _SCENARIO.findall((ROOT / "docs" / "acceptance.md").read_text(encoding="utf-8"))
BUILT = {1, 2, 3, 5, 6, 7, 11, 12, 13, 14, 16, 17, 18, 20, 29, 37, 39, 40, 41, 44, 48, 50}
"""Scenarios that concern what is built (issue B)."""


def test_every_scenario_that_concerns_what_is_built_is_listed_once() -> None:
    """More may be there; none twice."""
    numbers = Counter(int(number) for number, _ in SCENARIOS)
    assert set(numbers) >= BUILT
    assert set(numbers.values()) == {1}


@pytest.mark.parametrize(("number", "where"), SCENARIOS)
def test_a_listed_scenario_has_tests_that_say_so(number: str, where: str) -> None:
    """Each test named exists, and its docstring names the scenario."""
    named = re.findall(r"`([^`:]+)::([^`]+)`", where)
    assert named
    for path, test in named:
        source = _tests_of(path).get(test)
        assert source is not None, f"{path} has no {test}"
        assert re.search(rf"(?i)scenarios?\b[^.:]*\b{number}\b", source), f"{test} does not name scenario {number}"


_PAIN = re.compile(r"^\| pains? ([0-9, ]+) \|.*?\|(.*)\|$", flags=re.MULTILINE)
PAINS = [
    (int(number), where)
    for numbers, where in _PAIN.findall((ROOT / "docs" / "acceptance.md").read_text(encoding="utf-8"))
    for number in numbers.split(",")
]


def test_every_pain_of_canvas_is_listed_once() -> None:
    """The sixteen of celery-notes 5 that issue E names."""
    assert sorted(number for number, _ in PAINS) == list(range(1, 17))


@pytest.mark.parametrize(("number", "where"), PAINS)
def test_a_listed_pain_has_tests_that_say_so(number: int, where: str) -> None:
    """Each test named exists, and its docstring names the pain."""
    named = re.findall(r"`([^`:]+)::([^`]+)`", where)
    assert named
    for path, test in named:
        source = _tests_of(path).get(test)
        assert source is not None, f"{path} has no {test}"
        assert re.search(rf"\bPains?\b[^.:]*\b{number}\b", source), f"{test} does not name pain {number}"


def test_every_proof_of_a_guarantee_exists() -> None:
    """The tables of ``docs/guarantees.md`` name tests that are there, and each row of the crash matrix names one."""
    text = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[^`:]+)::([^`]+)`", text)
    assert len(named) > 40
    assert [f"{path}::{test}" for path, test in named if test not in _tests_of(path)] == []
