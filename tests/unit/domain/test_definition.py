"""Definitions of workflows, their registry, and the version of their code (D17)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial, wraps
from textwrap import dedent
from typing import Any

import pytest

from pikkuflow.domain.definition import Registry, WorkflowDefinition, code_version
from pikkuflow.errors import WorkflowDefinitionError, WorkflowNotFound


def compiled(source: str) -> Callable[..., Any]:
    """The function ``order`` of a source text."""
    names: dict[str, Any] = {}
    exec(compile(dedent(source), "shop.py", "exec"), names)  # noqa: S102 - versions are about source texts
    function: Callable[..., Any] = names["order"]
    return function


ORIGINAL = '''
def order(wf, count):
    """Sells things."""
    def price(line):
        "What a line costs."
        return line["cents"] * 2
    class Basket:
        """Holds lines."""
        size = 3
    try:
        total = sum(price(line) for line in wf.do("lines", lambda: []))
    except (ValueError, KeyError):
        total = 0
    if total > 100 and count in {"a", "b", "c"}:
        wf.sleep("2h")
    return total
'''

SAME = """
# A comment that was not there.


def order(wf, count):
    # Another one.
    def price(line):

        return line["cents"] * 2

    class Basket:
        size = 3

    try:
        total = sum(price(line) for line in wf.do("lines", lambda: []))
    except (ValueError, KeyError):
        total = 0
    if (
        total > 100
        and count in {"a", "b", "c"}
    ):
        wf.sleep("2h")
    return total
"""


def test_a_version_ignores_comments_docstrings_and_lines() -> None:
    """A deploy that changes only these strands no run (D17, scenario 32)."""
    assert code_version(compiled(ORIGINAL)) == code_version(compiled(SAME))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"2h"', '"3h"'),
        ("wf.sleep", "wf.nap"),
        ("total > 100", "total >= 100"),
        ('["cents"] * 2', '["cents"] * 3'),
        ("lambda: []", "lambda: {}"),
        ('{"a", "b", "c"}', '{"a", "b", "d"}'),
        ("(ValueError, KeyError)", "(ValueError, TypeError)"),
        ("size = 3", "size = 4"),
        ("def order(wf, count)", "def order(wf, count, more=1)"),
        ("> 100 and", "> 100 or"),
    ],
)
def test_a_version_changes_with_the_code(old: str, new: str) -> None:
    """Names, constants and instructions, also of nested functions (D17)."""
    assert old in ORIGINAL

    assert code_version(compiled(ORIGINAL)) != code_version(compiled(ORIGINAL.replace(old, new)))


def test_a_version_covers_what_a_try_covers() -> None:
    """The guarded instructions are not written among the instructions."""
    inside = "def order(wf):\n    try:\n        wf.a()\n        wf.b()\n    except ValueError:\n        pass\n"
    after = "def order(wf):\n    try:\n        wf.a()\n    except ValueError:\n        pass\n    wf.b()\n"

    assert code_version(compiled(inside)) != code_version(compiled(after))


def test_a_version_is_the_same_in_every_process() -> None:
    """Sets are written in another order there."""
    script = f"from tests.unit.domain.test_definition import *\nprint(code_version(compiled({ORIGINAL!r})))"
    versions = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout.strip()
        for seed in ("1", "2", "3")
    }

    assert versions == {code_version(compiled(ORIGINAL))}


def test_a_version_is_twelve_hexadecimal_digits() -> None:
    """It is shown in lists."""
    version = code_version(compiled(ORIGINAL))

    assert len(version) == 12
    assert int(version, 16) >= 0


def test_a_version_looks_under_wrappers() -> None:
    """A decorator that wraps properly, a partial, a method and a callable object stand for the function inside."""

    def order(wf: Any) -> None:
        wf.do("x")

    class Shop:
        def order(self, wf: Any) -> None:
            wf.do("x")

        def __call__(self, wf: Any) -> None:
            wf.do("x")

    @wraps(order)
    def wrapped(*args: Any) -> None:
        order(*args)

    assert code_version(wrapped) == code_version(order) == code_version(partial(order))
    assert code_version(Shop().order) == code_version(Shop.order)
    assert code_version(Shop()) == code_version(Shop.__call__)
    assert code_version(len) != code_version(max)


def coroutine() -> Any:
    """An async workflow."""

    async def body(_wf: Any) -> None: ...

    return body


def generator() -> Any:
    """A workflow that yields."""

    def body(_wf: Any) -> Iterator[int]:
        yield 1

    return body


def async_generator() -> Any:
    """Both at once."""

    async def body(_wf: Any) -> AsyncIterator[int]:
        yield 1

    return body


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (coroutine(), "coroutine"),
        (generator(), "generator"),
        (async_generator(), "coroutine"),
        (partial(generator(), 1), "generator"),
        (lambda: None, "takes no argument"),
        ("order", "no function"),
    ],
)
def test_what_cannot_be_a_workflow_is_refused_when_it_is_defined(body: Any, said: str) -> None:
    """One clear error that says what to do (issue 2, bad input)."""
    with pytest.raises(WorkflowDefinitionError, match=said):
        WorkflowDefinition(name="shop.order", body=body, version="1")


@pytest.mark.parametrize("name", ["", None, 42])
def test_a_workflow_has_a_name(name: Any) -> None:
    """Its runs are found by it."""
    with pytest.raises(WorkflowDefinitionError, match="name"):
        WorkflowDefinition(name=name, body=lambda wf: wf, version="1")


@pytest.mark.parametrize("version", ["", None, 2, "v" * 201])
def test_a_version_that_an_author_gives_is_a_text_that_can_be_stored(version: Any) -> None:
    """D17: it is compared and stored as it is."""
    with pytest.raises(WorkflowDefinitionError, match="version"):
        WorkflowDefinition(name="shop.order", body=lambda wf: wf, version=version)


@pytest.mark.parametrize(
    ("plan", "deterministic", "why"),
    [
        ((), False, "not empty"),
        (("a", ""), False, "not empty"),
        (("a", 7), False, "not empty"),
        (("a", "b", "a"), False, "'a' twice"),
        (None, True, "plans nothing"),
    ],
)
def test_a_plan_names_steps_and_each_once(plan: Any, deterministic: bool, why: str) -> None:  # noqa: FBT001 - a table
    """V10, D16: plans are not empty and named; a flag without a plan promises nothing that could be shown."""
    with pytest.raises(WorkflowDefinitionError, match=why):
        WorkflowDefinition(
            name="shop.order", body=lambda wf: wf, version="1", planned_steps=plan, deterministic=deterministic
        )


def test_a_workflow_may_have_a_plan_and_promise_to_keep_to_it() -> None:
    """V10, D16: a branchy one lists all of its arms and is not deterministic; most have no plan."""
    branchy = WorkflowDefinition(name="b", body=lambda wf: wf, version="1", planned_steps=("a", "a#1", "b"))
    straight = WorkflowDefinition(
        name="s", body=lambda wf: wf, version="1", planned_steps=("a", "b"), deterministic=True
    )

    assert (branchy.planned_steps, branchy.deterministic) == (("a", "a#1", "b"), False)
    assert (straight.planned_steps, straight.deterministic) == (("a", "b"), True)
    assert (define(lambda wf: wf).planned_steps, define(lambda wf: wf).deterministic) == (None, False)


def define(body: Callable[..., Any], name: str = "shop.order") -> WorkflowDefinition:
    """A definition as the decorator makes it."""
    return WorkflowDefinition(name=name, body=body, version=code_version(body))


def test_a_registry_gives_what_was_added() -> None:
    """By name; names come sorted."""
    registry = Registry()
    first, second = define(lambda wf: wf, "b"), define(lambda wf: wf, "a")
    registry.add(first)
    registry.add(second)

    assert registry.get("b") is first
    assert registry.find("c") is None
    assert registry.names() == ("a", "b")


def test_an_unknown_workflow_is_an_error_with_the_nearest_name() -> None:
    """A misspelt name is the usual reason."""
    registry = Registry()
    registry.add(define(lambda wf: wf))

    with pytest.raises(WorkflowNotFound, match=r"Did you mean 'shop.order'\?") as caught:
        registry.get("shop.orders")

    assert caught.value.workflow == "shop.orders"


def test_two_functions_cannot_have_one_name() -> None:
    """One of them would run the other's runs."""
    registry = Registry()
    registry.add(define(first_order))

    with pytest.raises(WorkflowDefinitionError, match="Two workflows"):
        registry.add(define(second_order))


def test_a_module_that_is_loaded_again_replaces_its_workflows() -> None:
    """The same function, newer."""
    registry = Registry()
    registry.add(define(first_order))
    newer = define(first_order)

    registry.add(newer)

    assert registry.get("shop.order") is newer


def first_order(wf: Any) -> None:
    """A workflow function."""
    wf.do("first")


def second_order(wf: Any) -> None:
    """Another one."""
    wf.do("second")
