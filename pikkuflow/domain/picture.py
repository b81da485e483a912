"""Pictures of workflows and runs: nodes and what leads from one to the other, before a form is chosen for them (issue E, T13.18)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pikkuflow.domain.gate import shown_name
from pikkuflow.domain.recorded_names import MILESTONE_PREFIX, UNDO_SUFFIX
from pikkuflow.domain.status import RunStatus, StepKind, StepStatus
from pikkuflow.domain.step import Step

__all__ = [
    "LEFT_OUT",
    "LOOKS",
    "NOT_BEGUN",
    "Link",
    "Look",
    "Picture",
    "PictureEdge",
    "PictureNode",
    "counted",
    "foremost",
    "one_line",
    "shown_step",
    "undone_by",
]

NOT_BEGUN: Final = "not begun"
"""What a run shows of a node that may still be reached."""

LEFT_OUT: Final = "left out"
"""What a run that has ended shows of a node that it never began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a status is shown: a letter, and two colours. The word is shown as well: no status is told by its colour alone."""

    letter: str
    fill: str
    line: str


_BLUE: Final = Look(letter="P", fill="#dbeafe", line="#1d4ed8")
_GREEN: Final = Look(letter="S", fill="#dcfce7", line="#15803d")
_RED: Final = Look(letter="F", fill="#fee2e2", line="#b91c1c")
_YELLOW: Final = Look(letter="W", fill="#fef9c3", line="#a16207")
_GREY: Final = Look(letter=".", fill="#f3f4f6", line="#6b7280")

LOOKS: Final[Mapping[str, Look]] = {
    StepStatus.PENDING.value: _BLUE,
    StepStatus.SCHEDULED.value: Look(letter="Q", fill=_BLUE.fill, line=_BLUE.line),
    StepStatus.RUNNING.value: Look(letter="R", fill="#cffafe", line="#0e7490"),
    StepStatus.SUCCEEDED.value: _GREEN,
    StepStatus.FAILED.value: _RED,
    StepStatus.SUSPENDED.value: _YELLOW,
    StepStatus.CANCELLED.value: Look(letter="C", fill="#f3e8ff", line="#7e22ce"),
    NOT_BEGUN: _GREY,
    LEFT_OUT: Look(letter="-", fill=_GREY.fill, line=_GREY.line),
}
"""The look of each status that a node may have."""


class Link(StrEnum):
    """Why one node comes after another."""

    NEXT = "next"
    RECOVER = "recover"
    """It takes over the other's failure."""
    UNDO = "undo"
    """It undoes the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureNode:
    """A node of a picture. ``status`` is None where no run is shown; ``notes`` are lines about it.

    ``together`` numbers the parallel steps that it was submitted with.
    """

    id: str
    title: str
    kind: StepKind | None = None
    status: str | None = None
    notes: tuple[str, ...] = ()
    together: int | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """What is written in the node: its title, its status in words, its notes."""
        return (self.title, *(() if self.status is None else (self.status,)), *self.notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureEdge:
    """``target`` comes after ``source``. ``is_walked``: the run went that way."""

    source: str
    target: str
    label: str = ""
    link: Link = Link.NEXT
    is_walked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A workflow or a run as nodes and edges. ``entry`` are the nodes that it begins with; a run has a ``status``."""

    title: str
    nodes: tuple[PictureNode, ...]
    edges: tuple[PictureEdge, ...] = ()
    entry: tuple[str, ...] = ()
    status: RunStatus | None = None


_FOREMOST: Final = (
    StepStatus.FAILED,
    StepStatus.SUSPENDED,
    StepStatus.RUNNING,
    StepStatus.SCHEDULED,
    StepStatus.PENDING,
    StepStatus.CANCELLED,
    StepStatus.SUCCEEDED,
)


_BREAKS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def one_line(text: str) -> str:
    """Text that stays on its line in a file and on a terminal: what would break it, or cannot be written, becomes a blank."""
    return _BREAKS.sub(" ", text)


def foremost(steps: Iterable[Step]) -> StepStatus:
    """The one status that several steps have together: the one that a reader has to know of."""
    found = {step.status for step in steps}
    return next(status for status in _FOREMOST if status in found)


def counted(steps: Iterable[Step], what: str) -> str:
    """How many steps have which status: ``5 items: 4 succeeded, 1 running``."""
    counts = Counter(step.status for step in steps)
    parts = ", ".join(f"{counts[status]} {status.value}" for status in reversed(_FOREMOST) if counts[status])
    return f"{counts.total()} {what}: {parts}"


def shown_step(name: str) -> str:
    """A step's name for a reader: a gate by its reason, a milestone by its name."""
    return shown_name(name) or name.removeprefix(MILESTONE_PREFIX)


def undone_by(node: PictureNode, undos: Iterable[Step]) -> tuple[tuple[PictureNode, ...], tuple[PictureEdge, ...]]:
    """The node that shows the compensations of ``node``, and what leads to it; nothing when there are none."""
    rows = list(undos)
    if not rows:
        return (), ()
    undo = PictureNode(
        id=f"{node.id}{UNDO_SUFFIX}",
        title=f"undo {node.title}",
        kind=StepKind.COMPENSATION,
        status=foremost(rows).value,
        notes=(counted(rows, "compensations"),) if len(rows) > 1 else (),
        together=node.together,
    )
    return (undo,), (PictureEdge(source=node.id, target=undo.id, label="undo", link=Link.UNDO, is_walked=True),)
