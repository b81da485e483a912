"""The pytest plugin: the fixture ``pikkuflow_memory``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from pikkuflow.app import PikkuFlow
from pikkuflow.testing.world import MemoryWorld, in_memory

__all__ = ["pikkuflow_memory"]


@pytest.fixture
def pikkuflow_memory() -> Iterator[Callable[[PikkuFlow], MemoryWorld]]:
    """A function to call with your extension: its workflows run in memory until the test ends."""
    with ExitStack() as stack:
        yield lambda pikku: stack.enter_context(in_memory(pikku))
