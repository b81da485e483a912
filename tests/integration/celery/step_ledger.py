"""Runs steps by the real runner and keeps what happened, in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from celery import Celery, signals

from pikkuflow.adapters.celery.step_runner import CeleryStepRunner
from pikkuflow.adapters.celery.translate import SignatureTranslator
from pikkuflow.domain.definition import Registry
from pikkuflow.domain.ids import RunId, StepName
from pikkuflow.ports import Attempted, AttemptEnd, Route, StepWork
from pikkuflow.replay.options import PLAIN, StepOptions
from pikkuflow.settings import Settings


@dataclass(slots=True)
class Ledger:
    """A runner and the order of events.

    ``last`` is what commit answers to a failed attempt, ``stores`` to one that succeeded; ``fails_with`` is what commit raises.
    """

    app: Celery
    settings: Settings = field(default_factory=Settings)
    events: list[str] = field(default_factory=list)
    last: bool = False
    stores: bool = True
    fails_with: BaseException | None = None
    attempted: list[Attempted] = field(default_factory=list)

    @property
    def runner(self) -> CeleryStepRunner:
        """A fresh runner on the app."""
        return CeleryStepRunner(self.app, self.settings, Registry())

    def commit(self, attempted: Attempted) -> bool:
        """Keep the outcome."""
        self.events.append("commit")
        if self.fails_with is not None:
            raise self.fails_with
        self.attempted.append(attempted)
        return self.stores if attempted.end is AttemptEnd.SUCCEEDED else self.last

    def route(self, signature: Any, options: StepOptions = PLAIN) -> Route:
        """Check and route a signature."""
        return self.runner.route(SignatureTranslator(self.app, Registry())(signature, None, options), "shop.order")

    def work(self, signature: Any, *, options: StepOptions = PLAIN, **fields: Any) -> StepWork:
        """One attempt at a signature, as a pass would make it from a route."""
        route = self.route(signature, options)
        work = StepWork(
            run_id=RunId("run-1"),
            step=StepName("step"),
            workflow="shop.order",
            owner="u1",
            task=signature["task"],
            args=route.args,
            kwargs=route.kwargs,
            attempt=1,
            attempts_allowed=6,
            options=json.loads(route.options),
        )
        return replace(work, **fields)

    def run(self, signature: Any, **fields: Any) -> Attempted:
        """Run one attempt and give its outcome."""
        self.runner.run(self.work(signature, **fields), self.commit)
        return self.attempted[-1]


@contextmanager
def heard(events: list[str]) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Connect to Celery's task signals; their names go to ``events``, with what they carry to the list given."""
    full: list[tuple[str, dict[str, Any]]] = []
    watched = ("task_prerun", "task_postrun", "task_success", "task_failure", "task_retry")
    receivers: dict[str, Callable[..., None]] = {}

    def receiver_of(name: str) -> Callable[..., None]:
        def receive(sender: Any = None, **carried: Any) -> None:
            events.append(name)
            full.append((name, {"sender": sender, **carried}))

        return receive

    for name in watched:
        receivers[name] = receiver_of(name)
        getattr(signals, name).connect(receivers[name], weak=False)
    try:
        yield full
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)
