"""What an error says to a person."""

from __future__ import annotations

import pytest

from pikkuflow.errors import PikkuFlowError


@pytest.mark.parametrize("said", ["no such table", "no such table."])
def test_what_to_do_is_a_sentence_of_its_own(said: str) -> None:
    """A message that ends in another library's words is closed before the hint."""
    assert str(PikkuFlowError(said, hint="Run the upgrade.")) == "no such table. Run the upgrade."


def test_without_a_hint_the_message_stands_alone() -> None:
    """Nothing is added."""
    assert str(PikkuFlowError("no such table")) == "no such table"
