"""``wf.map``: one task over many items, as steps of their own with one name (design 1, 2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from pikkuflow.domain.command import PlannedCall, Reach, Recorded, StepCall
from pikkuflow.domain.ids import StepName
from pikkuflow.errors import WorkflowDefinitionError
from pikkuflow.replay.options import StepOptions
from pikkuflow.replay.recorder import Recorder
from pikkuflow.replay.translate import Translate

__all__ = ["Fan", "MapRequest", "items_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRequest:
    """What a map was asked to do. ``chunk`` members travel in one message; ``window`` members at most are unsettled at a time.

    Raises ``WorkflowDefinitionError`` for a chunk or a window that is no number from 1.
    """

    task: Any
    items: tuple[Any, ...]
    name: str | None
    options: StepOptions
    chunk: int = 1
    window: int | None = None

    def __post_init__(self) -> None:
        _check_count("chunk", self.chunk)
        if self.window is not None:
            _check_count("window", self.window)


class Fan:
    """The members of one map, named ``name[i]`` and placed together, so that later calls keep their places whichever members have begun."""

    def __init__(self, recorder: Recorder, translate: Translate, request: MapRequest) -> None:
        self._recorder = recorder
        self._request = request
        calls = [
            translate(translate.member(request.task, item), request.name, request.options) for item in request.items
        ]
        group = recorder.map_name_of(calls[0].name)
        self._members = self._place(calls, group)
        self._answers: dict[int, Recorded] = {}

    def outcomes(self) -> tuple[tuple[StepName, Recorded], ...]:
        """Name and outcome of every member, in the order of the items, once all have settled. Parks until then."""
        unsettled = [member for member in self._members if member.row is None or not member.row.is_settled]
        if self._request.window is None:
            is_settled = self._reach(unsettled, joined=len(self._members) > 1)
        else:
            is_settled = self._work_window(unsettled, self._request.window)
        if not is_settled:
            raise self._recorder.parked()
        return tuple((member.name, self._outcome(member)) for member in self._members)

    def _place(self, calls: list[StepCall], group: str) -> tuple[PlannedCall, ...]:
        recorder = self._recorder
        after = recorder.previous
        members = tuple(
            recorder.place(replace(call, group=group), StepName(f"{group}[{index}]"), after)
            for index, call in enumerate(calls)
        )
        recorder.previous = members[-1].name
        return members

    def _work_window(self, unsettled: list[PlannedCall], window: int) -> bool:
        """Reach what is in flight, and as many new members as there is room for, until all have settled or the room is taken."""
        turn = [member for member in unsettled if member.row is not None]
        fresh = [member for member in unsettled if member.row is None]
        waiting = 0
        while True:
            room = max(window - waiting - len(turn), 0)
            turn, fresh = [*turn, *fresh[:room]], fresh[room:]
            if not turn:
                return not fresh and waiting == 0
            before = len(self._answers)
            self._reach(turn, joined=False)
            waiting += len(turn) - (len(self._answers) - before)
            turn = []

    def _reach(self, members: list[PlannedCall], *, joined: bool) -> bool:
        """True when every member given has its outcome now."""
        if not members:
            return True
        is_parallel = len(self._members) > 1 and self._request.window != 1
        reach = Reach(calls=tuple(members), together=is_parallel, joined=joined, chunk=self._request.chunk)
        is_settled = True
        for member, answer in zip(members, self._recorder.ask(reach), strict=True):
            if isinstance(answer, Recorded):
                self._answers[member.seq] = answer
            else:
                is_settled = False
        return is_settled

    def _outcome(self, member: PlannedCall) -> Recorded:
        row = member.row
        if row is not None and row.is_settled:
            return self._recorder.recorded(row)
        return self._answers[member.seq]


def items_of(items: Iterable[Any]) -> tuple[Any, ...]:
    """The items in their order. Raises ``WorkflowDefinitionError`` for a set: its order changes from process to process."""
    if isinstance(items, set | frozenset):
        raise WorkflowDefinitionError("The items of a map are a set, which has no order.", hint="Write sorted(items).")
    return tuple(items)


def _check_count(what: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkflowDefinitionError(f"{what}={value!r} is no number of members.", hint="Give 1 or more.")
