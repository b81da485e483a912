"""Reading Celery's signatures as the mappings that they are, and refusing what is none (recipes 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from pikkuflow.errors import WorkflowDefinitionError

__all__ = ["Kind", "items_of", "kind_of", "links_of", "options_of", "plain", "tasks_of"]


class Kind(StrEnum):
    """What a signature is."""

    TASK = "task"
    CHAIN = "chain"
    GROUP = "group"
    CHORD = "chord"
    MAP = "map"
    STARMAP = "starmap"
    CHUNKS = "chunks"


_KINDS: Final = {f"celery.{kind}": kind for kind in Kind if kind is not Kind.TASK}

_LINKS: Final = ("link", "link_error")
_FROZEN: Final = ("task_id", "group_id", "chord")


def plain(value: Any, *, where: str) -> Mapping[str, Any]:
    """The value, which has to be a signature. Raises ``WorkflowDefinitionError``, which says where it was found."""
    if not isinstance(value, Mapping) or not isinstance(value.get("task"), str) or not value["task"]:
        raise WorkflowDefinitionError(
            f"{value!r}, {where}, is no signature and cannot be made durable.", hint="Write task.s(...) there."
        )
    return value


def kind_of(signature: Any) -> Kind:
    """What it is. Raises ``WorkflowDefinitionError`` for what is no signature."""
    return _KINDS.get(plain(signature, where="in a canvas")["task"], Kind.TASK)


def tasks_of(signature: Mapping[str, Any]) -> list[Any]:
    """The members of a chain or group, or the header of a chord."""
    key = "header" if kind_of(signature) is Kind.CHORD else "tasks"
    found = (signature.get("kwargs") or {}).get(key)
    if isinstance(found, Mapping):
        # A header that is a group as a mapping, or one signature.
        return tasks_of(found) if kind_of(found) is Kind.GROUP else [found]
    return _listed(found, f"the {key} of a {kind_of(signature)}")


def items_of(signature: Mapping[str, Any]) -> list[Any]:
    """The items of a map, a starmap or chunks, taken once."""
    return _listed((signature.get("kwargs") or {}).get("it"), f"the items of {kind_of(signature)}")


def options_of(signature: Mapping[str, Any]) -> dict[str, Any]:
    """Its message options, without links.

    Raises ``WorkflowDefinitionError`` for a signature that was frozen or applied: the ids in it are another run's.
    """
    said = signature.get("options") or {}
    frozen = [key for key in _FROZEN if said.get(key) is not None]
    if frozen:
        raise WorkflowDefinitionError(
            f"The signature of {signature.get('task')!r} carries {frozen[0]} and cannot be made durable.",
            hint="It was frozen or applied. Make it anew; the ids of steps are made by their run.",
        )
    return {key: value for key, value in said.items() if value is not None and key not in _LINKS}


def links_of(signature: Mapping[str, Any]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Its callbacks and its errbacks. Raises ``WorkflowDefinitionError`` for one that is no signature."""
    said = signature.get("options") or {}
    if not said.get("link") and not said.get("link_error"):
        return [], []
    callbacks, errbacks = (
        [plain(one, where=f"the {key} of {signature['task']!r}") for one in _as_list(said.get(key))] for key in _LINKS
    )
    return callbacks, errbacks


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _listed(value: Any, what: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise WorkflowDefinitionError(f"{value!r}, {what}, is no list and cannot be made durable.")
    return list(value)
