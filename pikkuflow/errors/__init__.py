"""Every exception of pikkuflow.

    PikkuFlowError                  code, hint, status, public_message
    ├── SettingError                a setting is unknown or impossible
    ├── DurationError               a duration cannot be read
    ├── StepNameError               a step's name is no text, or is reserved
    ├── PayloadError                an argument, a result or a state value cannot be stored
    ├── TaskNotFound                no such Celery task on this worker
    ├── WorkflowNotFound      404   no such workflow here
    ├── WorkflowDefinitionError     a workflow function or option that cannot work
    ├── DirectCallError             a workflow called as a function
    ├── RunNotFound           404   no such run
    ├── RunExists             409   the run id is taken by another input
    ├── RunForbidden          403   the run belongs to someone else
    ├── RunFailed             422   the run ended failed, compensated or with a stuck compensation
    ├── RunCancelled          409   the run was cancelled
    ├── ResultTimeout         408   the run has not ended in the time given
    ├── RunSettled            409   the run has ended: nothing can be asked of it any more
    ├── RunNotSuspended       409   there is nothing to resume
    ├── GateNotFound          404   the run does not wait for that reason
    ├── SignalTimeout         408   no signal came in the time given
    ├── ApprovalResolved      409   the approval is decided already
    ├── ApprovalForbidden     403   the approval's policy refuses this decider
    ├── StepFailed            422   a step failed and has no attempts left
    │   ├── StepIgnored             its task raised Ignore or Reject
    │   └── StepLeaseExpired  500   its worker was lost and no attempt is left
    ├── StepSuperseded        409   another attempt owns the step
    ├── StepFunctionMismatch  409   a message names another task than the one recorded
    ├── VersionConflict       409   the body no longer makes the calls that were recorded
    ├── VersionNotFound       404   the graph that a run was started with is neither loaded nor stored
    ├── LeaseTaken                  someone else holds the lease
    ├── LeaseLost                   the lease was lost while it was needed
    ├── NoLeaseService              the engine was composed without leases
    ├── NoBroker                    a run needs a broker and none is configured
    ├── DispatchError               a message could not be handed to the broker
    ├── StoreUnavailable      503   the database does not answer
    └── SchemaOutdated              the database's schema is older than this code

Every error passes its arguments whole to ``super().__init__``, so it pickles and survives Celery's transport. ``status`` is the
HTTP-like number of spec 10.6 where there is one. ``hint`` says what to do.
"""

from __future__ import annotations

from pikkuflow.errors.definitions import (
    DirectCallError,
    DurationError,
    PayloadError,
    SettingError,
    StepNameError,
    TaskNotFound,
    WorkflowDefinitionError,
    WorkflowNotFound,
)
from pikkuflow.errors.root import PikkuFlowError
from pikkuflow.errors.runs import (
    ApprovalForbidden,
    ApprovalResolved,
    GateNotFound,
    ResultTimeout,
    RunCancelled,
    RunExists,
    RunFailed,
    RunForbidden,
    RunNotFound,
    RunNotSuspended,
    RunSettled,
    SignalTimeout,
)
from pikkuflow.errors.services import (
    DispatchError,
    LeaseLost,
    LeaseTaken,
    NoBroker,
    NoLeaseService,
    SchemaOutdated,
    StoreUnavailable,
)
from pikkuflow.errors.steps import StepFailed, StepFunctionMismatch, StepIgnored, StepLeaseExpired, StepSuperseded
from pikkuflow.errors.versions import VersionConflict, VersionNotFound

__all__ = [
    "ApprovalForbidden",
    "ApprovalResolved",
    "DirectCallError",
    "DispatchError",
    "DurationError",
    "GateNotFound",
    "LeaseLost",
    "LeaseTaken",
    "NoBroker",
    "NoLeaseService",
    "PayloadError",
    "PikkuFlowError",
    "ResultTimeout",
    "RunCancelled",
    "RunExists",
    "RunFailed",
    "RunForbidden",
    "RunNotFound",
    "RunNotSuspended",
    "RunSettled",
    "SchemaOutdated",
    "SettingError",
    "SignalTimeout",
    "StepFailed",
    "StepFunctionMismatch",
    "StepIgnored",
    "StepLeaseExpired",
    "StepNameError",
    "StepSuperseded",
    "StoreUnavailable",
    "TaskNotFound",
    "VersionConflict",
    "VersionNotFound",
    "WorkflowDefinitionError",
    "WorkflowNotFound",
]

for _name in __all__:
    # Where an error is defined is nobody's business: its qualified name is stored with runs and steps, and pickled between processes.
    globals()[_name].__module__ = __name__
