"""Values that cannot be stored, or that must come back as they were (scenario 48)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class BankError(Exception):
    """An exception whose constructor is its own: it cannot be made from its message."""

    def __init__(self, *, account: int, reason: str) -> None:
        super().__init__(f"account {account}: {reason}")
        self.account = account


def _raise_bank_error() -> None:
    raise BankError(account=7, reason="frozen")


VALUES: dict[str, Callable[[], Any]] = {
    "lock": threading.Lock,
    "set": lambda: {1, 2},
    "nan": lambda: float("nan"),
    "infinity": lambda: [float("inf")],
    "large": lambda: "x" * 200_000,
    "nul": lambda: "\u0000",
    "lookalike": lambda: {"__type__": "x", "__value__": 1},
    "error": _raise_bank_error,
}
