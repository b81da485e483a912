"""Whether and when a failed attempt is followed by another (D10, D29, 13.4)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pikkuflow.domain.retry import EXPONENTIAL, RetryPolicy, retries_of, retry_delay_text
from pikkuflow.errors import DurationError, WorkflowDefinitionError

_NO_DEVIATION = 0.5


@pytest.mark.parametrize("retries", [0, 1, 5])
def test_attempts_are_one_more_than_retries(retries: int) -> None:
    """D10, T4.1 to T4.3: ``retries=0`` never starts twice, 5 retries are 6 attempts."""
    policy = RetryPolicy(retries=retries)

    attempts = 1
    while policy.decide(attempts, _NO_DEVIATION) is not None:
        attempts += 1

    assert attempts == retries + 1


def test_exponential_delays_double_from_a_second_to_ten_minutes() -> None:
    """D29: 1, 2, 4 … 512, then 600 seconds."""
    policy = RetryPolicy(retries=100, delay=EXPONENTIAL)

    delays = [policy.decide(attempt, _NO_DEVIATION) for attempt in (*range(1, 13), 100)]

    assert delays == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]


@given(attempt=st.integers(1, 100), jitter=st.floats(0, 1))
def test_jitter_stays_within_a_fifth_either_way(attempt: int, jitter: float) -> None:
    """D29: an exponential delay is spread by 20 % either way, and never becomes 0."""
    policy = RetryPolicy(retries=100)
    plain = policy.decide(attempt, _NO_DEVIATION)
    spread = policy.decide(attempt, jitter)

    assert plain is not None
    assert spread is not None
    assert plain * 0.8 - 1e-9 <= spread <= plain * 1.2 + 1e-9


def test_jitter_spreads_to_both_ends() -> None:
    """D29: the ends are 20 % below and above."""
    policy = RetryPolicy(retries=5)

    assert policy.decide(1, 0.0) == pytest.approx(0.8)
    assert policy.decide(1, 1.0) == pytest.approx(1.2)


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
def test_a_fixed_delay_is_kept_to_the_letter(jitter: float) -> None:
    """T4.4: a number or a duration text is a fixed delay, also below a second, without jitter."""
    assert RetryPolicy(retries=5, delay=retry_delay_text("15s")).decide(3, jitter) == 15
    assert RetryPolicy(retries=5, delay=retry_delay_text(0.25)).decide(3, jitter) == 0.25


def test_a_delay_of_zero_is_zero() -> None:
    """D29: 0 means again in the same pass, which is not giving up."""
    assert RetryPolicy(retries=1, delay="0").decide(1, 0.9) == 0


def test_what_the_task_asks_for_wins() -> None:
    """D29: ``retry(countdown=…)`` holds over the step's delay, but not over its number of attempts."""
    policy = RetryPolicy(retries=1, delay="600")

    assert policy.decide(1, 0.0, 7.5) == 7.5
    assert policy.decide(1, 0.0, 0.0) == 0
    assert policy.decide(1, 0.0, -3.0) == 0
    assert policy.decide(2, 0.0, 7.5) is None


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("exponential", "exponential"),
        ("15s", "15"),
        (15, "15"),
        (15.0, "15"),
        (0, "0"),
        ("250ms", "0.25"),
        (1e-7, "1e-07"),
        (timedelta(hours=1), "3600"),
    ],
)
def test_a_delay_is_stored_as_text(written: Any, text: str) -> None:
    """T4.4: number of seconds, duration text or ``exponential``."""
    assert retry_delay_text(written) == text


@pytest.mark.parametrize("written", ["linear", True, -1, None, "", float("nan")])
def test_a_delay_that_is_none_is_refused(written: Any) -> None:
    """D28: and the error names it."""
    with pytest.raises(DurationError, match="retry_delay of step 'pack'"):
        retry_delay_text(written, what="retry_delay of step 'pack'")


def test_a_number_of_retries_is_whole_and_not_negative() -> None:
    """Spec 2.11: a bool, a text or a fraction is no number of retries."""
    assert retries_of(0, what="retries") == 0
    assert retries_of(7, what="retries") == 7
    for written in (True, -1, 1.0, "3", None):
        with pytest.raises(WorkflowDefinitionError, match="retries of step 'pack'"):
            retries_of(written, what="retries of step 'pack'")
