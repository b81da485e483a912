"""One pass over a workflow function (a graph is walked: ``graph_pass``).

The body is called with a ``Workflow`` and runs until it returns, raises, or needs something that is not there yet; then it is unwound by
``Parked``. A body that swallows the unwinding does not go on: every later call parks again, and what it returns or raises is dropped.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from pikkuflow.domain.definition import WorkflowDefinition
from pikkuflow.domain.history import History
from pikkuflow.replay.context import Workflow
from pikkuflow.replay.graph_pass import walk_graph
from pikkuflow.replay.outcome import Completed, Failed, Outcome, ParkedOutcome
from pikkuflow.replay.park import Parked
from pikkuflow.replay.recorder import Perform, Recorder
from pikkuflow.replay.translate import Translate

__all__ = ["replay"]

_HERE: Final = str(Path(__file__).parent)
_PROCESS_ENDS: Final = (SystemExit, KeyboardInterrupt)


def replay(
    definition: WorkflowDefinition,
    history: History,
    *,
    perform: Perform,
    translate: Translate,
    decode: Callable[[str], Any],
    warn: Callable[[str], None],
) -> Outcome:
    """Run the body of a workflow against what is recorded.

    Parameters
    ----------
    perform:
        Brings calls without a recorded outcome as far as they get; answers for each, in order. It may raise ``Parked``. An ``Exception``
        of it is raised in the body as what the call's arguments caused, but for those that speak of the surroundings (``StoreUnavailable``,
        ``LeaseLost``, ``NoLeaseService``, ``SchemaOutdated``, ``ConnectionError``); these, and any other ``BaseException``, end the pass
        and come out of here.
    translate:
        Reads what the body hands to ``wf``.
    decode:
        Reads recorded texts; what it raises ends the pass and comes out of here.
    warn:
        Is told what a person should know.
    """
    if definition.graph is not None:
        return walk_graph(definition, definition.graph, history, perform=perform, translate=translate, decode=decode)
    arguments = decode(history.run.input)
    recorder = Recorder(history, perform, decode)
    workflow = Workflow(recorder, translate)
    try:
        value = definition.body(workflow, *arguments["args"], **arguments["kwargs"])
        if recorder.halt is None:
            for failure in workflow._end():  # noqa: SLF001 - the end of a pass is no call of the user's
                warn(f"{failure}. Nobody asked for its result, so the workflow went on.")
            return Completed(value)
        return _halted(recorder.halt, warn, f"returned {type(value).__name__}")
    except _PROCESS_ENDS:
        raise
    except BaseException as error:  # noqa: BLE001 - a park is a BaseException, and a body may turn it into anything
        return _left(recorder, error, warn)
    finally:
        recorder.close()


def _left(recorder: Recorder, error: BaseException, warn: Callable[[str], None]) -> Outcome:
    """What a body that raised has come to."""
    halt = recorder.halt
    if halt is not None:
        if error is halt:
            return _halted(halt, None, "")
        return _halted(halt, warn, f"raised {type(error).__name__}")
    if not isinstance(error, Exception):
        raise error
    try:
        recorder.check_all_met()
    except Parked as conflict:
        return ParkedOutcome(conflict)
    return Failed(error)


def _halted(halt: BaseException, warn: Callable[[str], None] | None, instead: str) -> Outcome:
    if not isinstance(halt, Parked):
        raise halt
    if warn is not None:
        place = _place_of(halt.__traceback__)
        warn(
            f"The workflow caught the park at {place} and then {instead}, which is dropped. "
            "Catch Exception instead of BaseException, and do not return from finally or suppress in a with block around a wait."
        )
    return ParkedOutcome(halt)


def _place_of(trace: TracebackType | None) -> str:
    """File and line of the user's call that parked: the last frame before this package's own."""
    place = "an unknown place"
    for frame in traceback.extract_tb(trace):
        if frame.filename.startswith(_HERE):
            break
        place = f"{frame.filename}, line {frame.lineno}"
    return place
