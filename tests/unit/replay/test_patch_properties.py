"""Any body with any patches, any change of code while it runs: no run is mixed, and only code without a patch is ever stopped (D17)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from pikkuflow.domain.ids import StepName
from pikkuflow.domain.status import SuspendCode
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.outcome import Completed, Outcome, ParkedOutcome
from tests.unit.replay.recording import Recording
from tests.unit.replay.test_properties import OPERATIONS, Interpreter

PATCHES = st.tuples(
    st.just("patch"), st.sampled_from(["p", "q"]), st.lists(OPERATIONS, max_size=2), st.lists(OPERATIONS, max_size=2)
)
CHANGING = st.lists(st.one_of(OPERATIONS, PATCHES, PATCHES), max_size=7)


class Changing(Interpreter):
    """Operations with patches, as old code, as new code, or with the answers known."""

    def __init__(self, wf: Workflow, code: str | Mapping[str, bool]) -> None:
        super().__init__(wf)
        self.code = code

    def patch(self, patch_id: str, old: list[Any], new: list[Any]) -> None:
        """The old operations, or the new ones."""
        self.run(new if self._takes(patch_id) else old)

    def _takes(self, patch_id: str) -> bool:
        if isinstance(self.code, Mapping):
            return self.code[patch_id]
        return self.code == "new" and self.wf.patched(patch_id)


def body_of(operations: list[Any], code: str | Mapping[str, bool]) -> Callable[[Workflow], Any]:
    """The operations as that code has them."""

    def body(wf: Workflow) -> Any:
        interpreter = Changing(wf, code)
        interpreter.run(operations)
        return interpreter.seen

    return body


def is_conflict(outcome: Outcome) -> bool:
    """The pass met what its code does not have."""
    return isinstance(outcome, ParkedOutcome) and outcome.parked.code is SuspendCode.VERSION_CONFLICT


@settings(deadline=None, max_examples=150)
@given(operations=CHANGING, data=st.data())
def test_whatever_code_has_its_turn_each_patch_is_answered_once_and_no_run_is_mixed(
    operations: list[Any], data: Any
) -> None:
    """Old and new code take turns in any way, steps end in any order; new code is never stopped, old code only by a mark (D17)."""
    recording = Recording(lambda _wf: None)
    turns = data.draw(st.lists(st.sampled_from(["old", "new"]), max_size=8))
    for code in [*turns, *["new"] * 200]:
        rows = dict(recording.rows)
        outcome = recording.pass_once(body_of(operations, code))
        if is_conflict(outcome):
            assert code == "old"
            assert recording.rows == rows
            assert any(name.startswith("__patch:") for name in recording.names())
        if isinstance(outcome, Completed):
            break
        for name in data.draw(
            st.lists(st.sampled_from(recording.in_flight() or [StepName("")]), unique=True, max_size=3)
        ):
            if name:
                recording.settle(name)
        if code == "new" and recording.in_flight() and len(recording.reaches) > 100:
            recording.settle(recording.in_flight()[0])
    assert isinstance(outcome, Completed)

    marks = {patch_id: f"__patch:{patch_id}" in recording.names() for patch_id in ("p", "q")}
    alone = Recording(body_of(operations, marks))

    assert outcome.value == alone.run_to_end()
    assert [name for name in recording.names() if not name.startswith("__patch:")] == alone.names()
