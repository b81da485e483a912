"""Samples of what the authoring surface can do, beyond what a shop needs."""

from __future__ import annotations

from typing import Any

from pikkuflow import Workflow
from tests.acceptance.apps.samples.application import app, pikku, sample
from tests.acceptance.apps.samples.tasks import add, echo, square, total, typed, upper


@sample(12, output=[n * n for n in range(12)])
@pikku.workflow(name="pattern.window")
def window(wf: Workflow, size: int) -> list[int]:
    """At most three at a time."""
    return wf.map(square, range(size), window=3)


@sample(25, output=[n * n for n in range(25)])
@pikku.workflow(name="pattern.chunk")
def chunk(wf: Workflow, size: int) -> list[int]:
    """Ten quick members a message."""
    return wf.map(square, range(size), chunk=10)


@sample(output=[])
@pikku.workflow(name="pattern.empty")
def empty(wf: Workflow) -> list[int]:
    """A fan-out over nothing."""
    return wf.map(square, [])


@sample(output=[[0, 1], [0, 1, 4]])
@pikku.workflow(name="pattern.twice")
def twice(wf: Workflow) -> list[list[int]]:
    """Two fan-outs of one name."""
    return [wf.map(square, range(2), name="sq"), wf.map(square, range(3), name="sq")]


@sample(30, output=30)
@pikku.workflow(name="pattern.chain")
def chain(wf: Workflow, length: int) -> int:
    """A long chain."""
    value = 0
    for _ in range(length):
        value = wf.do("one more", add.s(value, 1))
    return value


@sample(3, output=6)
@pikku.workflow(name="pattern.queued", dispatch="queue")
def queued(wf: Workflow, length: int) -> int:
    """A message for every step."""
    value = 0
    for number in range(1, length + 1):
        value = wf.do("add", add.s(value, number))
    return value


@sample(output=[1, 4])
@pikku.workflow(name="pattern.inline", dispatch="inline")
def inline(wf: Workflow) -> list[int]:
    """No message for any step, together or not."""
    return list(wf.gather(wf.submit(square.s(1)), wf.submit(square.s(2))))


@sample(4, output=24)
@pikku.workflow(name="pattern.recursion")
def recursion(wf: Workflow, number: int) -> int:
    """A workflow that is its own child."""
    return 1 if number == 0 else number * wf.do("smaller", recursion.s(number - 1))


@sample([3, 4], output={"sum": 25, "parts": [9, 16]})
@pikku.workflow(name="pattern.fold")
def fold(wf: Workflow, numbers: list[int]) -> dict[str, Any]:
    """State as an accumulator."""
    for number in numbers:
        wf.state.set("parts", [*wf.state.get("parts", []), wf.do("part", square.s(number))])
    parts = wf.state.get("parts")
    return {"sum": wf.do(total.s(parts)), "parts": parts}


@sample(output=[[["item", "own"], {"key": 1}], [["own"], {}], [["named"], {}]])
@pikku.workflow(name="pattern.signatures")
def signatures(wf: Workflow) -> list[Any]:
    """A partial signature is completed by the item, an immutable one is not, a name is as good as a task."""
    (partial,) = wf.map(echo.s("own", key=1), ["item"], name="partial")
    (immutable,) = wf.map(echo.si("own"), ["item"], name="immutable")
    named = wf.do("named", app.signature(echo.name, args=("named",)))
    return [partial, immutable, named]


@sample(output=["datetime", "Decimal", "\u0000"])
@pikku.workflow(name="pattern.types")
def types(wf: Workflow) -> list[str]:
    """Values that plain JSON has not come back as they were, after a park too."""
    value = wf.do("typed", typed.s())
    wf.sleep(0.05)
    return [type(value["when"]).__name__, type(value["price"]).__name__, value["raw"]]


@sample(output=["A", "B", 4])
@pikku.workflow(name="pattern.handles")
def handles(wf: Workflow) -> list[Any]:
    """Handles asked one by one, in another order."""
    first, second = wf.submit("first", upper.s("a")), wf.submit("second", upper.s("b"))
    squared = wf.do("between", square.s(2))
    late = second.result()
    return [first.result(), late, squared]


@sample(output="today")
@pikku.workflow(name="pattern.functions")
def functions(wf: Workflow) -> str:
    """Inline functions, remembered."""
    day = wf.do("day", lambda: "day")
    return wf.do("today", lambda: f"to{day}")


@sample(output={"__type__": "x", "__value__": 1})
@pikku.workflow(name="pattern.lookalike")
def lookalike(wf: Workflow) -> Any:
    """Data that looks like the encoder's own marks."""
    ((value,), _) = wf.do(echo.s({"__type__": "x", "__value__": 1}))
    wf.sleep(0.05)
    return value
