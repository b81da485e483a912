"""What every verb receives: the ports, the registry of workflows and the settings, chosen by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pikkuflow.domain.definition import Registry
from pikkuflow.domain.gate_act import AuditEntry
from pikkuflow.domain.graph import Graph
from pikkuflow.domain.ids import Holder
from pikkuflow.domain.version import VersionKind
from pikkuflow.engine.group_commit import GroupWriter
from pikkuflow.ports import Clock, Codec, Deliverer, Dispatcher, Hints, Ids, Leases, Observer, RunStore, StepRunner
from pikkuflow.replay.translate import Translate
from pikkuflow.settings import Settings

__all__ = ["Runtime"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The engine's surroundings.

    ``leases`` is None when the engine was composed by hand without a lease service: passes are refused with ``NoLeaseService``.
    ``translate`` turns what a body wrote into step calls.
    ``holder`` names this process (``<node uuid>:<pid>``). ``is_stopping`` is True once a warm shutdown began. ``consumes`` says whether
    this worker consumes a workflow's queue, so that a step worker may continue its run in place. ``has_broker`` is False for an app
    without a broker URL. ``writer`` is there when outcomes of several runs may be written together (``group_commit``). ``audit`` is the
    application's own hook for decisions. ``versions`` are those that this process has found or stored (``own_version``).
    """

    store: RunStore
    leases: Leases | None
    hints: Hints
    dispatcher: Dispatcher
    runner: StepRunner
    translate: Translate
    deliverer: Deliverer
    codec: Codec
    clock: Clock
    ids: Ids
    observer: Observer
    registry: Registry
    settings: Settings
    holder: Callable[[], Holder]
    is_stopping: Callable[[], bool]
    consumes: Callable[[str], bool]
    has_broker: bool
    audit: Callable[[AuditEntry], None] | None = None
    writer: GroupWriter | None = None
    versions: dict[tuple[str, str], Graph | VersionKind] = field(default_factory=dict, compare=False, repr=False)
