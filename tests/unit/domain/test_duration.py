"""Durations as people write them (spec 2.5, D28)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pikkuflow.domain.duration import seconds_of
from pikkuflow.errors import DurationError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (10, 10),
        (0, 0),
        (0.25, 0.25),
        (timedelta(minutes=2, milliseconds=500), 120.5),
        ("500ms", 0.5),
        ("1ms", 0.001),
        ("10s", 10),
        ("10 s", 10),
        ("1sec", 1),
        ("1second", 1),
        ("2seconds", 2),
        ("3m", 180),
        ("3min", 180),
        ("1minute", 60),
        ("2minutes", 120),
        ("2h", 7_200),
        ("1hour", 3_600),
        ("2hours", 7_200),
        ("3d", 259_200),
        ("1day", 86_400),
        ("2days", 172_800),
        ("1w", 604_800),
        ("1week", 604_800),
        ("2weeks", 1_209_600),
        ("1y", 31_557_600),
        ("1year", 31_557_600),
        ("2years", 63_115_200),
        ("0s", 0),
    ],
)
def test_a_duration_is_read_into_seconds(written: Any, seconds: float) -> None:
    """D28: a bare number is seconds; timedelta and text are accepted; a year has 365.25 days."""
    assert seconds_of(written, what="the sleep") == seconds


@pytest.mark.parametrize(
    "written",
    [
        *(True, False, None, b"10s", [10], {}),
        *(-1, -0.001, timedelta(seconds=-1), float("nan"), float("inf"), float("-inf")),
        *(
            "",
            " ",
            "10",
            "s",
            "-10s",
            "+10s",
            "1.5h",
            "1h30m",
            "10 parsecs",
            "10S",
            "10s ",
            " 10s",
            "ten s",
            "1e3s",
            "\u0661s",
        ),
        *("2000y", 1e12, 10**400, "9" * 400 + "s", timedelta.max),
    ],
)
def test_anything_else_is_no_duration(written: Any) -> None:
    """D28: bool, negative and NaN are refused, and so is what no calendar can hold."""
    with pytest.raises(DurationError) as refused:
        seconds_of(written, what="delay of step 'pack'")

    assert "delay of step 'pack'" in str(refused.value)
    assert refused.value.hint


def test_minus_zero_is_zero() -> None:
    """A stored delay is never written as -0."""
    assert str(seconds_of(-0.0, what="x")) == "0.0"
