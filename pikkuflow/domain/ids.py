"""Identities of runs, steps, passes and claims.

Ids are ``NewType`` texts so that a type checker keeps them apart. A step is named by its run and its *physical name*: the name the body
gave, with ``#1``, ``#2`` … for repeats and ``[i]`` for members of a map (spec 1.2).
"""

from __future__ import annotations

from hashlib import sha1
from typing import Final, NewType
from uuid import UUID

__all__ = [
    "INVOCATION_NAMESPACE",
    "KEY_LENGTH",
    "ClaimId",
    "FanId",
    "Holder",
    "PassId",
    "RunId",
    "StepName",
    "invocation_id",
    "numbered_name",
]

KEY_LENGTH: Final = 255
"""How many characters an id, an owner or a name may have: what every database can index."""

RunId = NewType("RunId", str)
StepName = NewType("StepName", str)
PassId = NewType("PassId", str)
ClaimId = NewType("ClaimId", str)
FanId = NewType("FanId", str)

Holder = NewType("Holder", str)
"""Who works: ``<node uuid>:<pid>``. What a dead process held is found by it (design 3.9)."""

INVOCATION_NAMESPACE: Final = UUID("70696b6b-7500-5770-9f6c-6f77000a0001")
"""Frozen (spec 1.2): changing it would change every idempotency key ever handed out."""

_NAMESPACE_BYTES: Final = INVOCATION_NAMESPACE.bytes
_VARIANT: Final = {f"{digit:x}": f"{digit & 3 | 8:x}" for digit in range(16)}
"""The digit that holds a UUID's variant, for each digit of the hash."""


def invocation_id(run_id: RunId, step: StepName) -> str:
    """The idempotency key of a step: UUIDv5 over ``<run>:<physical name>``, the same for every attempt (spec 1.2)."""
    # As uuid.uuid5 makes it, for a third of its price: every attempt asks.
    digest = sha1(_NAMESPACE_BYTES + f"{run_id}:{step}".encode(), usedforsecurity=False).hexdigest()
    variant = _VARIANT[digest[16]]
    return f"{digest[:8]}-{digest[8:12]}-5{digest[13:16]}-{variant}{digest[17:20]}-{digest[20:32]}"


def numbered_name(name: str, ordinal: int) -> str:
    """The ``ordinal``-th use of a name in a pass, counted from 0: the first keeps the bare name, repeats are ``name#1``, ``name#2``."""
    return name if ordinal == 0 else f"{name}#{ordinal}"
