"""What a step message claimed and has not begun: whatever ends the message early, these steps were not at work and are given back.

Whoever renews for this process would keep their claims for as long as it works anything, and a lapsed claim costs an attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from pikkuflow.domain.ids import ClaimId
from pikkuflow.domain.step import Step
from pikkuflow.engine.runtime import Runtime
from pikkuflow.engine.send import SOON_SECONDS, send_steps
from pikkuflow.engine.tell import warn

__all__ = ["Unstarted", "give_back"]


class Unstarted:
    """The claimed steps of one message that are still to be begun, in its order."""

    def __init__(self, rt: Runtime, steps: Sequence[Step]) -> None:
        self._rt = rt
        self._left = deque(steps)
        self._count = len(steps)

    def begin(self) -> Step | None:
        """The next step, which counts as begun. None: there is none, or the worker stops after the one in hand and gave back the others."""
        if self._rt.is_stopping() and len(self._left) < self._count:
            self.give_back()
        return self._left.popleft() if self._left else None

    def give_back(self) -> None:
        """Give back what was not begun; a store that does not take it is told of and left to the lease."""
        steps = tuple(self._left)
        self._left.clear()
        try:
            give_back(self._rt, steps)
        except Exception as error:  # noqa: BLE001 - what ended the message is the error to raise
            warn(
                self._rt,
                f"{len(steps)} step(s) could not be given back, so another attempt begins when their claim lapses: {error}",
                run_id=steps[0].run_id,
            )


def give_back(rt: Runtime, steps: Sequence[Step]) -> None:
    """Have claimed steps of one run wait again with the same attempt, and send them at once, each by itself.

    One message each: what ended the message that brought them may be one of them, or their number. Raises ``StoreUnavailable``.
    """
    if not steps:
        return
    run_id = steps[0].run_id
    named: dict[ClaimId, list[Step]] = {}
    for step in steps:
        named.setdefault(step.claim_id or ClaimId(""), []).append(step)
    messages = [
        message
        for claim_id, mine in named.items()
        for message in rt.store.give_back(run_id, claim_id, [(step.name, step.attempt) for step in mine])
    ]
    if not send_steps(rt, messages):
        rt.hints.leave(run_id, SOON_SECONDS)
