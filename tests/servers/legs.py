"""What happens to a test whose server is not there.

PostgreSQL and Valkey come as wheels with the development set: missing at home skips, missing in CI fails. RabbitMQ and MariaDB are
Debian packages: a missing one skips, and the terminal summary names it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NoReturn

import pytest

MARK = "leg not run: "


def missing(service: str, reason: str, *, required_in_ci: bool) -> NoReturn:
    """Skip the test that asked for a service, or fail it in CI when the service must be there."""
    text = f"{MARK}{service}: {reason}"
    if required_in_ci and os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


def named(skip_messages: Iterable[str]) -> list[str]:
    """The legs that skipped tests, each once, out of pytest's skip messages."""
    return sorted({message.split(MARK, 1)[1] for message in skip_messages if MARK in message})
