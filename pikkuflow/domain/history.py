"""What one pass may know about a run: read once, when the pass opens (design 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from pikkuflow.domain.ids import PassId
from pikkuflow.domain.run import Run
from pikkuflow.domain.step import Step

__all__ = ["History"]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A run and its steps as one opening read them.

    ``run.seen`` is the baseline of news: only loading the history again moves it. ``run.lost`` is True while a pass before this one ended
    without closing and no in-place outcome was recorded since (design 2). ``steps`` are ordered by ``seq``.
    """

    pass_id: PassId
    run: Run
    steps: tuple[Step, ...]
