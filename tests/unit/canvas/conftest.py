"""A stage in each place: what is promised of a canvas holds in all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.canvas.stage import PLACES, Stage, staged


@pytest.fixture(params=PLACES)
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    """In the passes, by messages, and in the starting process."""
    with staged(request.param) as made:
        yield made


@pytest.fixture
def here() -> Iterator[Stage]:
    """In the passes, for what does not depend on the place."""
    with staged("here") as made:
        yield made
