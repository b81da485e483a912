"""Durable workflows for people who already run Celery."""

from pikkuflow.adapters.celery.durable import DurableCanvas
from pikkuflow.adapters.celery.starting import Call
from pikkuflow.adapters.celery.workflow_task import WorkflowTask
from pikkuflow.app import PikkuFlow
from pikkuflow.domain.gate import Decider
from pikkuflow.domain.gate_act import AuditEntry
from pikkuflow.domain.graph import Node
from pikkuflow.domain.graph_input import ref, template
from pikkuflow.domain.graph_step import RecoveringFrom
from pikkuflow.domain.summary import RunSummary
from pikkuflow.domain.undo import Undo
from pikkuflow.engine.current_step import CurrentStep, current_step
from pikkuflow.engine.run_handle import Run
from pikkuflow.errors import (
    ApprovalForbidden,
    ApprovalResolved,
    DirectCallError,
    DispatchError,
    DurationError,
    GateNotFound,
    LeaseLost,
    LeaseTaken,
    NoBroker,
    NoLeaseService,
    PayloadError,
    PikkuFlowError,
    ResultTimeout,
    RunCancelled,
    RunExists,
    RunFailed,
    RunForbidden,
    RunNotFound,
    RunNotSuspended,
    RunSettled,
    SchemaOutdated,
    SettingError,
    SignalTimeout,
    StepFailed,
    StepFunctionMismatch,
    StepIgnored,
    StepLeaseExpired,
    StepNameError,
    StepSuperseded,
    StoreUnavailable,
    TaskNotFound,
    VersionConflict,
    WorkflowDefinitionError,
    WorkflowNotFound,
)
from pikkuflow.replay.context import Handle, Workflow
from pikkuflow.replay.detached import DetachedRun
from pikkuflow.replay.gates import Approval

__all__ = [
    "Approval",
    "ApprovalForbidden",
    "ApprovalResolved",
    "AuditEntry",
    "Call",
    "CurrentStep",
    "Decider",
    "DetachedRun",
    "DirectCallError",
    "DispatchError",
    "DurableCanvas",
    "DurationError",
    "GateNotFound",
    "Handle",
    "LeaseLost",
    "LeaseTaken",
    "NoBroker",
    "NoLeaseService",
    "Node",
    "PayloadError",
    "PikkuFlow",
    "PikkuFlowError",
    "RecoveringFrom",
    "ResultTimeout",
    "Run",
    "RunCancelled",
    "RunExists",
    "RunFailed",
    "RunForbidden",
    "RunNotFound",
    "RunNotSuspended",
    "RunSettled",
    "RunSummary",
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
    "Undo",
    "VersionConflict",
    "Workflow",
    "WorkflowDefinitionError",
    "WorkflowNotFound",
    "WorkflowTask",
    "current_step",
    "ref",
    "template",
]
