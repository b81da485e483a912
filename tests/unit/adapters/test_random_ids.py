"""Fresh ids and jitter (``Ids`` port)."""

from __future__ import annotations

import os
import random
from uuid import UUID

import pytest

from pikkuflow.adapters.random_ids import RandomIds


def test_ids_are_uuids_and_differ() -> None:
    """Each is a version 4 UUID in its usual text."""
    made = {RandomIds().new_id() for _ in range(1_000)}

    assert len(made) == 1_000
    assert all(str(UUID(text)) == text and UUID(text).version == 4 for text in made)


def test_a_task_that_seeds_the_random_module_repeats_no_id() -> None:
    """User code seeds for its own reasons; ids must not come again."""
    random.seed(7)
    first = (RandomIds().new_id(), RandomIds().jitter())
    random.seed(7)

    assert (RandomIds().new_id(), RandomIds().jitter()) != first


# Python 3.12 warns of a fork beside threads; prefork does it all the same, and this child only draws an id.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_draws_other_ids_than_its_parent() -> None:
    """Prefork children begin as copies."""
    ids = RandomIds()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ids.new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as said:
        assert said.read() != ids.new_id()


def test_jitter_is_spread_from_0_to_1() -> None:
    """A number from 0 to 1."""
    drawn = [RandomIds().jitter() for _ in range(1_000)]

    assert all(0 <= number <= 1 for number in drawn)
    assert min(drawn) < 0.1
    assert max(drawn) > 0.9
