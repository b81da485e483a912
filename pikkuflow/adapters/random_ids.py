"""Fresh ids and jitter (``Ids`` port), safe after a fork."""

from __future__ import annotations

import os
from typing import Final
from uuid import UUID

__all__ = ["RandomIds"]

_SCALE: Final = float(2**64)


class RandomIds:
    """Ids and jitter from the operating system's randomness.

    Not from the ``random`` module's shared generator: a task that seeds it would make ids repeat.
    """

    __slots__ = ()

    def new_id(self) -> str:
        """A random UUID (version 4) as text."""
        return str(UUID(bytes=os.urandom(16), version=4))

    def jitter(self) -> float:
        """A number from 0 to 1."""
        return int.from_bytes(os.urandom(8), "big") / _SCALE
