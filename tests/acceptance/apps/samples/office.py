"""Samples of task lists, projects and documents."""

from __future__ import annotations

from typing import Any

from pikkuflow import StepFailed, Workflow
from tests.acceptance.apps.samples.application import pikku, sample
from tests.acceptance.apps.samples.tasks import add, is_even, make, mark, send, square, total, upper


@sample("tea", output={"title": "tea", "state": "done"})
@pikku.workflow(name="todo.create")
def create(wf: Workflow, title: str) -> Any:
    """A sequence."""
    thing = wf.do("create", make.s(title))
    begun = wf.do("begin", mark.s(thing, "begun"))
    return wf.do("finish", mark.s(begun, "done"))


@sample(["a", "b", "c"], output=["A", "B", "C"])
@pikku.workflow(name="todo.bulk")
def bulk(wf: Workflow, titles: list[str]) -> list[str]:
    """A loop: the same step again and again."""
    return [wf.do("title", upper.s(title)) for title in titles]


@sample("high", output="sms: now", name="high")
@sample("low", output="mail: later", name="low")
@pikku.workflow(name="todo.priority")
def priority(wf: Workflow, level: str) -> Any:
    """A branch."""
    if level == "high":
        return wf.do("urgent", send.s("sms", "now"))
    return wf.do("calm", send.s("mail", "later"))


@sample({"one": [1, 2], "two": [3]}, output={"one": [1, 4], "two": [9]})
@pikku.workflow(name="todo.subtasks")
def subtasks(wf: Workflow, lists: dict[str, list[int]]) -> Any:
    """Nested loops."""
    return {name: [wf.do(f"{name} subtask", square.s(n)) for n in numbers] for name, numbers in sorted(lists.items())}


@sample([1, 2, 3, 4], output=[4, 16])
@pikku.workflow(name="todo.filter")
def filtered(wf: Workflow, numbers: list[int]) -> list[int]:
    """A chain of filters: what one step says decides whether there is a next."""
    even = [n for n in numbers if wf.do("even?", is_even.s(n))]
    return [wf.do("square", square.s(n)) for n in even]


@sample(3, output=[0, 1, 3])
@pikku.workflow(name="todo.counting")
def counting(wf: Workflow, up_to: int) -> list[int]:
    """A while loop whose condition is a step's result."""
    seen: list[int] = []
    value = 0
    while value <= up_to and len(seen) < 3:
        value = wf.do("add", add.s(value, len(seen)))
        seen.append(value)
    return seen


@sample("archived", output="nothing to do", name="done")
@sample("open", output={"title": "open", "state": "archived"}, name="open")
@pikku.workflow(name="project.archive")
def archive(wf: Workflow, state: str) -> Any:
    """An early return, before any step."""
    if state == "archived":
        return "nothing to do"
    return wf.do(mark.s({"title": state, "state": "new"}, "archived"))


@sample(["linux", "mac"], [1, 2], output=["LINUX-1", "LINUX-2", "MAC-1", "MAC-2"])
@pikku.workflow(name="project.matrix")
def matrix(wf: Workflow, systems: list[str], versions: list[int]) -> list[str]:
    """A matrix, all cells at once."""
    return wf.map(upper, [f"{system}-{version}" for system in systems for version in versions], name="cell")


@sample([1, 2, 3, 4], output=30)
@pikku.workflow(name="project.report")
def report(wf: Workflow, numbers: list[int]) -> int:
    """Fan out, then aggregate."""
    squares = wf.map(square, numbers)
    return int(wf.do("total", total.s(squares)))


@sample(["x", "y"], output=["welcome X", "welcome Y"])
@pikku.workflow(name="project.setup")
def setup(wf: Workflow, members: list[str]) -> list[str]:
    """A child run for each member, one after the other."""
    return [wf.do("member", member.s(name)) for name in members]


@sample("z", output="welcome Z")
@pikku.workflow(name="project.member")
def member(wf: Workflow, name: str) -> str:
    """The child of ``project.setup``."""
    called = wf.do(upper.s(name))
    return f"welcome {called}"


@sample([[1, 2], [3], []], output=[5, 9, 0])
@pikku.workflow(name="project.import")
def imported(wf: Workflow, groups: list[list[int]]) -> list[int]:
    """A nested fan-out: child runs at once, each with a fan-out of its own."""
    return list(wf.gather(*[wf.submit(f"group {i}", report.s(group)) for i, group in enumerate(groups)]))


@sample("draft", output={"state": "reviewed", "by": ["ann", "bob"]})
@pikku.workflow(name="document.review")
def review(wf: Workflow, _title: str) -> Any:
    """State kept beside the steps."""
    wf.state.set("by", [])
    for name in ("ann", "bob"):
        wf.do("ask", upper.s(name))
        wf.state.set("by", [*wf.state.get("by"), name])
    return {"state": "reviewed", "by": wf.state.get("by")}


@sample(5, output="small", name="small")
@sample(50, output="medium: mail: approve", name="medium")
@sample(500, output="large: ['mail: approve', 'sms: approve']", name="large")
@pikku.workflow(name="document.publish")
def publish(wf: Workflow, pages: int) -> str:
    """Tiers of a switch, each with other steps."""
    match pages:
        case n if n < 10:
            return "small"
        case n if n < 100:
            return f"medium: {wf.do('approve', send.s('mail', 'approve'))}"
        case _:
            both = [wf.submit("approve", send.s(channel, "approve")) for channel in ("mail", "sms")]
            return f"large: {wf.gather(*both)}"


@sample("memo", output=["MEMO", {"title": "memo", "state": "new"}, 9])
@pikku.workflow(name="document.convert")
def convert(wf: Workflow, title: str) -> list[Any]:
    """Different steps at once."""
    return list(wf.gather(wf.submit(upper.s(title)), wf.submit(make.s(title)), wf.submit(square.s(3))))


@sample("memo", output="no fax: the fax is gone")
@pikku.workflow(name="document.fax")
def fax(wf: Workflow, title: str) -> str:
    """A failure that the workflow goes on from."""
    try:
        return str(wf.do("fax it", send.s("fax", title), retries=0))
    except StepFailed as error:
        return f"no fax: {error.error_message}"
