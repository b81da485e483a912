"""Step names: what a user may give, and what the engine keeps for itself (design 1, spec 1.2)."""

from __future__ import annotations

import re
from typing import Final

from pikkuflow.errors import StepNameError

__all__ = [
    "MILESTONE_PREFIX",
    "NOW_STEP",
    "PATCH_PREFIX",
    "RANDOM_STEP",
    "STATE_PREFIX",
    "UNDO_SUFFIX",
    "UUID_STEP",
    "can_be_kept",
    "check_derived_name",
    "check_step_name",
]

NOW_STEP: Final = "__now"
"""``wf.now()``: a FUNCTION step without a function; the engine answers with its clock's time."""

UUID_STEP: Final = "__uuid"
"""``wf.uuid()``: a FUNCTION step without a function; the engine answers with a fresh id."""

RANDOM_STEP: Final = "__random"
"""``wf.random()``: a FUNCTION step without a function; the engine answers with a number from 0 to 1."""

STATE_PREFIX: Final = "__state:"
"""``wf.state.set(key, …)`` is the STATE step ``__state:<key>``."""

MILESTONE_PREFIX: Final = "__milestone:"
"""``wf.milestone(name)`` is the MILESTONE step ``__milestone:<name>``."""

PATCH_PREFIX: Final = "__patch:"
"""``wf.patched(id)`` is the FUNCTION step ``__patch:<id>``, in runs that reached that place with the code that calls it."""

UNDO_SUFFIX: Final = ":compensate"
"""What undoes a step is named after it."""

_HINT: Final = "A name holds no '[' or '#', begins with no '__' and does not end in ':compensate'."

_UNKEPT: Final = re.compile("[\x00\ud800-\udfff]")


def can_be_kept(text: str) -> bool:
    """Every database keeps a text as it is, but for a NUL character and half of a surrogate pair."""
    return text.isprintable() or not _UNKEPT.search(text)


def check_step_name(name: object) -> str:
    """The name that a user gave, when it may be used.

    Raises ``StepNameError`` when it is no text (naming the type it has), empty, or has a shape kept for the engine (T3.17).
    """
    if not isinstance(name, str):
        raise StepNameError(
            f"A step's name is text, not {type(name).__name__}.", hint='Write wf.do("charge card", ...).'
        )
    if not name:
        raise StepNameError("A step's name is empty.", hint="Leave it out, and the step is named after its task.")
    if name.startswith("__"):
        raise StepNameError(f"Step name {name!r} begins with '__'.", hint=_HINT)
    return check_derived_name(name)


def check_derived_name(name: str) -> str:
    """A name taken from a task or a state key, which must not look like a repeat, a map's member or an undoing.

    Raises ``StepNameError``, also for one with a character that no database keeps.
    """
    if "[" in name or "#" in name or name.endswith(UNDO_SUFFIX):
        raise StepNameError(f"Step name {name!r} has a shape kept for the engine.", hint=_HINT)
    if not can_be_kept(name):
        raise StepNameError(
            f"Step name {name!r} has a character that cannot be stored.", hint="Leave out NUL and halves of pairs."
        )
    return name
